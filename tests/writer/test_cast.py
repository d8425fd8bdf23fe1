"""F32 tensors that stand for BF16 or F16: rounding to nearest even, on every path to the same bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from deltastore.errors import InputError
from deltastore.log import Log
from deltastore.stores.memory import MemoryStore
from deltastore.stream import AsyncStream
from deltastore.validate import validate
from deltastore.writer.opening import open_writer
from tests.doubles.models import bf16, blank
from tests.doubles.stores import memory_store

HARD = np.array(
    [
        0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x00007FFF, 0x00008000, 0x00008001, 0x80008000,
        0x007FFFFF, 0x00800000, 0x3F800000, 0x3F807FFF, 0x3F808000, 0x3F808001, 0x3F818000, 0x3F817FFF,
        0xBF808000, 0xBF818000, 0x7F7F7FFF, 0x7F7F8000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000,
        0x7F800001, 0x7FBFFFFF, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFC00000, 0xFFFFFFFF, 0x477FE000,
        0x477FEFFF, 0x477FF000, 0x33000000, 0x33000001, 0x387FC000, 0x38802000, 0xC77FF000, 0x4B800001,
    ],
    dtype=np.uint32,
)  # fmt: skip
"""F32 bits around every corner: ties, subnormals, overflow to infinity, both kinds of NaN and both signs."""


def nearest(wide: int, *, fraction: int, exponent: int) -> int:
    """The bits of the nearest float with so many fraction and exponent bits; ties to even. Integers only."""
    sign, magnitude = wide >> 31, wide & 0x7FFFFFFF
    top = ((1 << exponent) - 1) << fraction
    if magnitude > 0x7F800000:
        return sign << (fraction + exponent) | top | 1 << (fraction - 1)
    if magnitude == 0x7F800000:
        return sign << (fraction + exponent) | top
    power, mantissa = magnitude >> 23, magnitude & 0x7FFFFF
    mantissa, power = (mantissa | 0x800000, power) if power else (mantissa, 1)
    # value = mantissa * 2**(power - 150); a unit of the target is 2**(target - bias - fraction).
    bias = (1 << (exponent - 1)) - 1
    target = max(power - 127 + bias, 1)
    shift = (target - bias - fraction) - (power - 150)
    kept, rest = mantissa >> shift, mantissa & ((1 << shift) - 1)
    half = 1 << (shift - 1)
    kept += rest > half or (rest == half and kept & 1)
    bits = ((target - 1) << fraction) + kept
    return sign << (fraction + exponent) | min(bits, top)


def expected(wide: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    shape = {"BF16": {"fraction": 7, "exponent": 8}, "F16": {"fraction": 10, "exponent": 5}}[name]
    flat = [nearest(int(one), **shape) for one in wide.reshape(-1)]
    return np.array(flat, dtype=np.uint16).reshape(wide.shape)


def wide_bits(count: int) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(11)
    anything = random.integers(0, 1 << 32, count, dtype=np.uint32)
    usual = random.standard_normal(count).astype(np.float32).view(np.uint32)
    ties = (usual & np.uint32(0xFFFF0000)) | np.uint32(0x8000)
    return np.concatenate([HARD, anything, usual, ties])


async def stored(store: MemoryStore, name: str) -> np.ndarray[Any, Any]:
    async with await AsyncStream.open(store) as stream:
        weights = await stream.weights()
        array, member = weights.table.places[name]
        parts = [
            (box, await weights.read(array, chunk)) for chunk, box in weights.table.arrays[array].grid.boxes()
        ]
        out: np.ndarray[Any, Any] = np.empty(weights.table.arrays[array].grid.extent, np.uint16)
        for box, part in parts:
            out[box.slices] = part
        return out[member, ...]


def test_the_oracle_agrees_with_numpy_on_numbers() -> None:
    wide = wide_bits(2000)
    numbers = wide[~np.isnan(wide.view(np.float32))]
    assert (
        expected(numbers, "BF16") == numbers.view(np.float32).astype(ml_dtypes.bfloat16).view(np.uint16)
    ).all()
    with np.errstate(over="ignore"):
        assert (expected(numbers, "F16") == numbers.view(np.float32).astype(np.float16).view(np.uint16)).all()


@pytest.mark.parametrize("name", ["BF16", "F16"])
@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("form", ["contiguous", "transposed", "strided", "scalar"])
async def test_rounding_is_to_nearest_even_and_the_same_everywhere(
    name: str, library: str, form: str
) -> None:
    wide = wide_bits(600)
    wide = wide[: len(wide) // 8 * 8].reshape(-1, 8)
    if form == "scalar":
        wide = np.array(HARD[28])
    held: Any = wide.view(np.float32).copy()
    if form == "transposed":
        held = np.ascontiguousarray(held.T).T
    elif form == "strided":
        held = np.repeat(held, 2, axis=1)[:, ::2]
    tensor = torch.from_numpy(np.asarray(held)) if library == "torch" else held
    store = memory_store()
    await AsyncStream.create(store, {"w": tensor}, cast=name)
    assert (await Log(store).newest_manifest()).statistics.elements == wide.size
    assert (await stored(store, "w") == expected(wide, name)).all()


async def test_a_cast_trainer_publishes_resumes_and_is_followed() -> None:
    random = np.random.default_rng(5)
    masters: dict[str, Any] = {
        "layers.0.weight": torch.from_numpy(
            random.standard_normal((6, 7)).astype(np.float32)
        ).requires_grad_(),
        "layers.1.weight": torch.from_numpy(random.standard_normal((6, 7)).astype(np.float32)),
        "norm": random.standard_normal(9).astype(np.float32),
        "steps": np.arange(3, dtype=np.int64),
    }
    store = memory_store()
    await AsyncStream.create(store, masters, cast="BF16")
    writer = await open_writer(store, masters, cast=True)
    assert writer.version == 0
    with torch.no_grad():
        masters["layers.0.weight"] += 1e-9
    assert (await writer.publish()).changed == 0
    with torch.no_grad():
        masters["layers.0.weight"] *= 1.5
    masters["norm"][3] = np.float32("nan")
    masters["norm"][4] = np.float32(-0.0)
    published = await writer.publish()
    assert published.changed > 40
    engine = blank(
        {
            "layers.0.weight": bf16(np.zeros((6, 7))),
            "layers.1.weight": bf16(np.zeros((6, 7))),
            "norm": bf16(np.zeros(9)),
            "steps": np.zeros(3, np.int64),
        }
    )
    async with await AsyncStream.open(store) as stream:
        reader = await stream.reader(engine)
        await reader.sync()
    assert engine["norm"].view(np.uint16)[3] == 0x7FC0
    assert engine["norm"].view(np.uint16)[4] == 0x8000
    first = masters["layers.0.weight"].detach().numpy()
    assert (engine["layers.0.weight"].view(np.uint16) == expected(first.view(np.uint32), "BF16")).all()
    assert (await open_writer(store, masters, cast=True)).version == 2
    assert (await validate(store)).ok


async def test_without_a_cast_f32_is_refused_for_bf16() -> None:
    store = memory_store()
    model = {"w": np.ones(4, np.float32)}
    await AsyncStream.create(store, model, cast="BF16")
    with pytest.raises(InputError) as caught:
        await open_writer(store, model)
    assert caught.value.code == "wrong_dtype"
    assert "F32" in str(caught.value)
    assert "BF16" in str(caught.value)


async def test_a_cast_is_of_f32_only_and_to_a_narrower_float_only() -> None:
    for cast in ("F32", "bf16", "F8_E4M3", ""):
        with pytest.raises(InputError) as caught:
            await AsyncStream.create(memory_store(), {"w": np.ones(4, np.float32)}, cast=cast)
        assert caught.value.code == "bad_argument"
    store = memory_store()
    model = {"a": np.ones(4, np.float64), "b": np.ones(4, np.float16), "c": np.ones(2, np.int32)}
    await AsyncStream.create(store, model, cast="BF16")
    assert (await open_writer(store, model, cast=True)).version == 0
    for wrong in ({**model, "b": np.ones(4, np.float64)}, {**model, "a": np.ones(4, np.float32)}):
        with pytest.raises(InputError) as refused:
            await open_writer(store, wrong, cast=True)
        assert refused.value.code == "wrong_dtype"


async def test_an_f32_tensor_of_the_stream_stays_as_it_is_under_cast() -> None:
    store = memory_store()
    router = np.array([1.00000012, np.nan, -0.0], np.float32)
    mixed = {"router": router, "w": bf16([1, 2])}
    await AsyncStream.create(store, mixed)
    writer = await open_writer(store, {"router": router, "w": bf16([1, 2]).astype(np.float32)}, cast=True)
    assert writer.version == 0
