"""Parts of a model as kernels see them: all ranks together are the whole model, to the bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deltastore.detect.snapshot import Snapshot
from deltastore.errors import InputError
from deltastore.format.digest import MODULUS
from deltastore.format.table import TensorTable
from deltastore.kernels.pieces import Pieces
from deltastore.layout.batches import chunks_in_order
from deltastore.layout.cutting import plain_table
from deltastore.layout.live import LiveWeights, live_specs
from deltastore.layout.live_parts import LiveParts, PartTensors
from deltastore.layout.parts import Part
from deltastore.layout.weights import Portion, digest_of
from tests.doubles.models import bf16, copy_of, cut_table, differing, every_dtype, small_model, unsigned

from .partitions import STYLES, parts_of, split_model

seeds = st.integers(0, 1 << 30)
limits = st.sampled_from([1, 3, 7, 16, 1 << 20])
styles = st.sampled_from([*STYLES, "any"])


def wide_model(seed: int) -> dict[str, Any]:
    """Every element type, ranks 0 to 4, extents 0 and 1."""
    random = np.random.default_rng(seed)
    cube = random.integers(0, 1 << 16, (3, 1, 4, 2))
    return {**small_model(seed), **every_dtype(), "cube.0.w": bf16(cube), "cube.1.w": bf16(cube[::-1])}


def ranks_of(
    table: TensorTable, model: Mapping[str, Any], seed: int, ranks: int, style: str, *, cast: bool = False
) -> list[LiveParts]:
    split = split_model(np.random.default_rng(seed), model, ranks, style)
    return [LiveParts(table, parts_of(model, held), cast=cast) for held in split]


def written(table: TensorTable, every: list[Pieces]) -> dict[str, Any]:
    """The model that pieces of several ranks make, each element from exactly one of them."""
    bits = [np.zeros(array.grid.extent, array.element.storage) for array in table.arrays]
    count = [np.zeros(array.grid.extent, int) for array in table.arrays]
    for pieces in every:
        for piece in pieces.pieces:
            place: Any = (piece.member, *(slice(a, a + n) for a, n in zip(piece.lo, piece.size, strict=True)))
            bits[piece.array][place] = piece.view
            count[piece.array][place] += 1
    assert all((times == 1).all() for times in count)
    return {name: bits[array][member, ...] for name, (array, member) in table.places.items()}


def as_bits(model: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tensor.view(unsigned(tensor)) for name, tensor in model.items()}


@given(seeds, limits, st.integers(1, 5), styles)
@settings(max_examples=60)
async def test_all_ranks_together_are_the_whole(seed: int, limit: int, ranks: int, style: str) -> None:
    model = wide_model(seed)
    table = cut_table(model, limit)
    every = ranks_of(table, model, seed, ranks, style)
    digests = [await digest_of(live) for live in every]
    assert sum(digests) % MODULUS == await digest_of(LiveWeights(table, model))
    assert differing(written(table, [await live.gather(live.chunks) for live in every]), as_bits(model)) == []
    for live in every:
        assert isinstance(live, Portion)
        copies = [np.zeros(box.size, table.arrays[box.array].element.storage) for box in live.boxes]
        live.fill(copies)
        assert live.pieces is not None
        for copy, piece in zip(copies, live.pieces.pieces, strict=True):
            assert copy.tobytes() == np.ascontiguousarray(piece.view).tobytes()


@given(seeds, limits, st.integers(1, 4), styles)
@settings(max_examples=40)
def test_chunks_are_those_under_the_boxes_in_pack_order(
    seed: int, limit: int, ranks: int, style: str
) -> None:
    model = wide_model(seed)
    table = cut_table(model, limit, slabs=2)
    order = {tuple(chunk): number for number, chunk in enumerate(chunks_in_order(table).tolist())}
    for live in ranks_of(table, model, seed, ranks, style):
        numbers: list[Any] = [np.full(array.grid.extent, -1) for array in table.arrays]
        for number, array in enumerate(table.arrays):
            for chunk, box in array.grid.boxes():
                numbers[number][box.slices] = chunk
        wanted = {
            (held.array, int(chunk))
            for held in live.boxes
            for chunk in numbers[held.array][
                (held.member, *(slice(a, a + n) for a, n in zip(held.lo, held.size, strict=True)))
            ].ravel()
        }
        assert [tuple(chunk) for chunk in live.chunks.tolist()] == sorted(wanted, key=lambda one: order[one])


def hostile_floats(seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    patterns = random.integers(0, 1 << 32, (3, 4, 6), dtype=np.uint32)
    special = np.array(
        [
            *(0, 1 << 31, 0x7F800001, 0xFF800001, 0x7FC00000, 0x7F800000, 0xFF800000, 0x3F808000),
            *(0x3F818000, 0x00000001, 0x80000001, 0x7F7FFFFF, 0x477FF000, 0x33000000, 0xB3000001),
        ],
        np.uint32,
    )
    with np.errstate(all="ignore"):
        return {
            "layers.0.w": patterns.view(np.float32)[0],
            "layers.1.w": patterns.view(np.float32)[1],
            "special": special.view(np.float32),
            "scalar": np.array(1.0000001, np.float32),
        }


@given(
    seeds,
    limits,
    st.integers(1, 4),
    styles,
    st.sampled_from(["BF16", "F16"]),
    st.sampled_from(["numpy", "torch"]),
)
@settings(max_examples=60)
async def test_f32_parts_that_stand_for_narrower_tensors(
    seed: int, limit: int, ranks: int, style: str, target: str, library: str
) -> None:
    model = hostile_floats(seed)
    table = cut_table_as(model, target, limit)
    whole = LiveWeights(table, model, cast=True)
    given_model = (
        {name: torch.from_numpy(tensor) for name, tensor in model.items()} if library == "torch" else model
    )
    every = ranks_of(table, given_model, seed, ranks, style, cast=True)
    assert sum([await digest_of(live) for live in every]) % MODULUS == await digest_of(whole)
    gathered = [await live.gather(live.chunks) for live in every]
    wanted = {name: whole.tensor(*table.places[name]) for name in model}
    assert differing(written(table, gathered), wanted) == []
    for live in every:
        copies = [np.zeros(box.size, "<u2") for box in live.boxes]
        live.fill(copies)
        for box, copy in zip(live.boxes, copies, strict=True):
            cut = tuple(slice(a, a + n) for a, n in zip(box.lo, box.size, strict=True))
            assert copy.tobytes() == whole.tensor(box.array, box.member)[cut].tobytes()


def cut_table_as(model: Mapping[str, Any], target: str, limit: int) -> TensorTable:
    narrow = {name: np.zeros(tensor.shape, np.float16) for name, tensor in model.items()}
    if target == "BF16":
        narrow = {name: bf16(np.zeros(tensor.shape)) for name, tensor in model.items()}
    return cut_table(narrow, limit)


@given(seeds, st.integers(1, 4), styles)
@settings(max_examples=30)
async def test_memory_in_any_order(seed: int, ranks: int, style: str) -> None:
    random = np.random.default_rng(seed)
    plain = {f"layers.{layer}.w": bf16(random.integers(0, 1 << 16, (5, 6))) for layer in range(3)}
    plain["norm"] = bf16(random.integers(0, 1 << 16, 9))
    strided: dict[str, Any] = copy_of(plain)
    strided["layers.0.w"] = np.asfortranarray(strided["layers.0.w"])
    strided["layers.1.w"] = np.repeat(strided["layers.1.w"].view(np.uint16), 2, axis=1).view(bf16(0).dtype)[
        :, ::2
    ]
    turned = torch.from_numpy(np.ascontiguousarray(plain["layers.2.w"].view(np.int16).T)).view(torch.bfloat16)
    strided["layers.2.w"] = turned.T
    strided["norm"] = strided["norm"][::-1].copy()[::-1]
    table = cut_table(plain, 7)
    every = ranks_of(table, strided, seed, ranks, style)
    assert sum([await digest_of(live) for live in every]) % MODULUS == await digest_of(
        LiveWeights(table, plain)
    )
    assert differing(written(table, [await live.gather(live.chunks) for live in every]), as_bits(plain)) == []


@given(seeds, limits, st.integers(1, 4), styles, st.integers(0, 30))
@settings(max_examples=40)
async def test_a_copy_of_parts_follows_what_changes(
    seed: int, limit: int, ranks: int, style: str, changes: int
) -> None:
    model = wide_model(seed)
    table = cut_table(model, limit)
    every = [await Snapshot.of(live) for live in ranks_of(table, model, seed, ranks, style)]
    before = await digest_of(LiveWeights(table, model))
    random = np.random.default_rng(seed)
    changed = {name: tensor for name, tensor in as_bits(model).items() if tensor.size}
    for name in random.choice(sorted(changed), changes).tolist():
        flat = changed[name].reshape(-1)
        flat[int(random.integers(flat.size))] ^= 1
    difference = 0
    for copy in every:
        async for patches in copy.changes():
            difference += int(patches.rows["difference"].sum(dtype=np.uint64))
        copy.committed()
    assert (before + difference) % MODULUS == await digest_of(LiveWeights(table, model))
    copies = [
        await copy.published.gather(copy.published.chunks)
        for copy in every
        if isinstance(copy.published, Portion)
    ]
    assert differing(written(table, copies), as_bits(model)) == []


@pytest.mark.parametrize(
    ("name", "part", "code"),
    [
        ("norm.x", Part(bf16([1]), (4,), (0,)), "unknown_tensor"),
        ("norm", Part(bf16([1]), (5,), (0,)), "wrong_shape"),
        ("norm", Part(bf16([[1]]), (4, 1), (0, 0)), "wrong_shape"),
        ("norm", Part(np.zeros(1, np.float32), (4,), (0,)), "wrong_dtype"),
        ("norm", Part(np.zeros(1, np.float16), (4,), (0,)), "wrong_dtype"),
        ("norm", Part(np.broadcast_to(bf16(1), (4,)), (4,), (0,)), "wrong_memory"),
        ("norm", [Part(bf16([1]), (4,), (0,)), bf16([1])], "bad_argument"),
        ("norm", 3, "wrong_memory"),
    ],
)
def test_what_does_not_fit_is_named(name: str, part: Any, code: str) -> None:
    table = plain_table(live_specs({"norm": bf16([1, 2, 3, 4])}))
    with pytest.raises(InputError) as refusal:
        LiveParts(table, {name: part})
    assert refusal.value.code == code
    assert name in str(refusal.value)


def test_a_cast_that_was_not_asked_for() -> None:
    table = plain_table(live_specs({"norm": bf16([1, 2, 3, 4])}))
    part = Part(np.zeros(2, np.float32), (4,), (0,))
    LiveParts(table, {"norm": part}, cast=True)
    with pytest.raises(InputError, match="cast=True"):
        LiveParts(table, {"norm": part})


EMPTY: tuple[PartTensors, ...] = ({}, {"norm": []}, {"norm": Part(bf16([]), (4,), (4,))})


async def test_nothing_held_is_nothing() -> None:
    table = plain_table(live_specs({"norm": bf16([1, 2, 3, 4])}))
    for held in EMPTY:
        live = LiveParts(table, held)
        assert (live.boxes, len(live.chunks)) == ((), 0)
        assert await digest_of(live) == 0


def test_a_torch_part_that_moved_is_found() -> None:
    table = plain_table(live_specs({"norm": bf16([1, 2, 3, 4])}))
    held = torch.zeros(2, dtype=torch.bfloat16)
    live = LiveParts(table, {"norm": Part(held, (4,), (2,))})
    live.check_in_place()
    held.data = torch.zeros(2, dtype=torch.bfloat16)
    with pytest.raises(InputError, match="'norm' has got other memory") as refusal:
        live.check_in_place()
    assert refusal.value.code == "wrong_memory"
