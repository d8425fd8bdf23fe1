"""Small models with hostile bits, as live NumPy tensors, and comparisons by bits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np

from deltastore.format.dtypes import DTYPES
from deltastore.format.table import Array, SlabRule, TensorTable
from deltastore.layout.cutting import plain_chunk, plain_table
from deltastore.layout.live import live_specs
from deltastore.layout.memory import bits_of

Tensors = dict[str, np.ndarray[Any, Any]]
Bits = dict[str, np.ndarray[Any, Any]]

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
HOSTILE_BF16 = (
    0x0000,
    0x8000,
    0x0001,
    0x8001,
    0x7F80,
    0xFF80,
    0x7FC1,
    0xFFA5,
    0x7F81,
    0x3F80,
    0xBF80,
    0x7F7F,
)
"""Zeros of both signs, the smallest numbers, infinities, NaN of both kinds, ones, the largest number."""


def bf16(bits: Any) -> np.ndarray[Any, Any]:
    """These bits as a BF16 tensor of its own memory."""
    return np.array(bits, dtype=np.uint16).view(BFLOAT16)


def small_model(seed: int = 0) -> Tensors:
    """Stacked layers, an embedding, an FP32 router, a scalar, an empty tensor, FP8, integers."""
    random = np.random.default_rng(seed)
    model: Tensors = {
        f"model.layers.{layer}.mlp.up_proj.weight": bf16(random.integers(0, 1 << 16, (6, 8)))
        for layer in range(3)
    }
    model["model.embed_tokens.weight"] = bf16(random.integers(0, 1 << 16, (12, 8)))
    model["model.norm.weight"] = bf16(HOSTILE_BF16)
    model["model.router.weight"] = random.standard_normal((4, 8)).astype(np.float32)
    model["model.scale"] = bf16(0x3F80)
    model["model.nothing"] = bf16(np.zeros((0, 5)))
    model["model.fp8.weight"] = random.integers(0, 256, (5, 3)).astype(np.uint8).view(ml_dtypes.float8_e4m3fn)
    model["model.steps"] = random.integers(-5, 1 << 60, 3).astype(np.int64)
    return model


def tiny_model(seed: int = 0) -> Tensors:
    """Two arrays of BF16: three stacked layers and a norm."""
    random = np.random.default_rng(seed)
    model: Tensors = {
        f"layers.{layer}.weight": bf16(random.integers(0, 1 << 16, (4, 5))) for layer in range(3)
    }
    model["norm"] = bf16(HOSTILE_BF16)
    return model


def blank(model: Mapping[str, Any]) -> Tensors:
    """Memory for the same tensors, holding something else."""
    return {
        name: np.full_like(tensor.view(unsigned(tensor)), 0xA5).view(tensor.dtype)
        for name, tensor in model.items()
    }


def copy_of(model: Mapping[str, Any]) -> Tensors:
    """The same tensors in memory of their own."""
    return {name: np.array(tensor) for name, tensor in model.items()}


def unsigned(tensor: np.ndarray[Any, Any]) -> np.dtype[Any]:
    """Unsigned integers as wide as the tensor's elements."""
    return np.dtype(f"<u{tensor.dtype.itemsize}")


def bits(model: Mapping[str, Any]) -> Bits:
    """The bits of every tensor as they are now: a copy."""
    return {name: bits_of(name, tensor).copy() for name, tensor in model.items()}


def differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Names of the tensors that are not the same to the bit: empty for equal models."""
    if first.keys() != second.keys():
        return sorted(first.keys() ^ second.keys())
    return [
        name
        for name in first
        if bits_of(name, first[name]).tobytes() != bits_of(name, second[name]).tobytes()
        or first[name].shape != second[name].shape
    ]


def change(model: Tensors, random: np.random.Generator, count: int = 4) -> None:
    """Change ``count`` elements in place: steps of one and other small ones, sign flips, anything."""
    names = [name for name, tensor in model.items() if tensor.size]
    for _ in range(count):
        tensor = model[names[int(random.integers(len(names)))]]
        flat = tensor.view(unsigned(tensor)).reshape(-1)
        width = tensor.dtype.itemsize * 8
        at = int(random.integers(flat.size))
        old = int(flat[at])
        jump = int.from_bytes(random.bytes(8), "little")
        new = (old + 1, old - 3, old ^ (1 << (width - 1)), old + 90, jump)[int(random.integers(5))]
        flat[at] = new % (1 << width)


def cut_table(model: Mapping[str, Any], limit: int, slabs: int = 0) -> TensorTable:
    """The model's table with chunks of at most ``limit`` elements; slabs go by the first tensor axis."""
    plain = plain_table(live_specs(model))
    arrays = []
    for array in plain.arrays:
        cut = slabs > 0 and len(array.shape) == 2
        rule = SlabRule(by="axis" if cut else "common", of=int(cut), count=0)
        arrays.append(
            Array(
                pattern=array.pattern,
                dtype=array.dtype,
                shape=array.shape,
                members=array.members,
                chunk=plain_chunk(array.grid.extent, limit),
                slab=rule,
            )
        )
    return TensorTable.seal_new(slabs=slabs, arrays=tuple(arrays))


def every_dtype() -> Tensors:
    """One hostile tensor of every element type that NumPy can hold, with ml_dtypes' help."""
    made: Tensors = {}
    for name, native in NATIVE.items():
        width = DTYPES[name].bits
        sign = 1 << (width - 1)
        patterns = [0, 1, sign, sign - 1, sign + 1, 2 * sign - 1, sign // 3, sign + sign // 5]
        values = np.array(patterns, dtype=np.uint64).astype(f"<u{width // 8}")
        if name == "BOOL":
            values = values & np.uint8(1)
        made[f"of.{name}"] = values.view(native)
    return made


NATIVE: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "U8": np.dtype(np.uint8),
    "I8": np.dtype(np.int8),
    "U16": np.dtype(np.uint16),
    "I16": np.dtype(np.int16),
    "U32": np.dtype(np.uint32),
    "I32": np.dtype(np.int32),
    "U64": np.dtype(np.uint64),
    "I64": np.dtype(np.int64),
    "F16": np.dtype(np.float16),
    "F32": np.dtype(np.float32),
    "F64": np.dtype(np.float64),
    "C64": np.dtype(np.complex64),
    "BF16": BFLOAT16,
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "F8_E4M3FNUZ": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "F8_E5M2FNUZ": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "F8_E8M0": np.dtype(ml_dtypes.float8_e8m0fnu),
}
