"""Small models with hostile bits, held in memory: what anchors and checkpoints must carry unchanged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from deltastore.format.dtypes import DTYPES, Dtype
from deltastore.format.table import Array, SlabRule, TensorSpec, TensorTable, array_order, stack_tensors
from deltastore.layout.cutting import plain_chunk
from deltastore.layout.weights import Bits, Weights, chunks_of

Tensors = dict[str, Bits]
Held = dict[int, Bits]


class HeldWeights:
    """Weights over whole tensors in memory, by name."""

    def __init__(self, table: TensorTable, tensors: Tensors) -> None:
        self._table = table
        self._tensors = tensors

    @property
    def table(self) -> TensorTable:
        return self._table

    async def read(self, array: int, chunk: int) -> Bits:
        spec = self._table.arrays[array]
        box = spec.grid.box(chunk)
        members = spec.names[box.start[0] : box.start[0] + box.size[0]]
        return np.stack([self._tensors[name][box.slices[1:]] for name in members])


def cut_table(specs: Iterable[TensorSpec], limit: int) -> TensorTable:
    """The table of these tensors with chunks of at most ``limit`` elements."""
    arrays = []
    for pattern, tensor, members in stack_tensors(specs):
        count = Array.model_construct(members=members).count
        arrays.append(
            Array(
                pattern=pattern,
                dtype=tensor.dtype.name,
                shape=tensor.shape,
                members=members,
                chunk=plain_chunk((count, *tensor.shape), limit),
                slab=SlabRule(by="common", of=0, count=0),
            )
        )
    return TensorTable.seal_new(slabs=0, arrays=tuple(sorted(arrays, key=array_order)))


def specs_of(tensors: Tensors, dtype: Dtype) -> list[TensorSpec]:
    return [TensorSpec(name, bits.shape, dtype) for name, bits in tensors.items()]


def patterns(dtype: Dtype) -> np.ndarray[Any, Any]:
    """Bits that are easily lost: zeros of both signs, ones, and for floats what surrounds the exponents."""
    sign = 1 << (dtype.bits - 1)
    mantissa = {8: 3, 16: 7, 32: 23, 64: 52}[dtype.bits]
    infinity = sign - (1 << mantissa)
    values = [
        0,
        1,
        sign,
        sign + 1,
        sign - 1,
        2 * sign - 1,
        infinity,
        infinity + 1,
        sign + infinity,
        infinity - 1,
    ]
    return np.array(values, dtype=dtype.storage)


def hostile_tensors(dtype: Dtype, seed: int = 0) -> Tensors:
    """Tensors of one element type: stacked, cut, scalar, empty, all +0, all -0, all NaN."""
    random = np.random.default_rng(seed)
    some = (
        random.integers(0, 1 << dtype.bits, 3 * 7 * 9, dtype=np.uint64, endpoint=False)
        if dtype.bits < 64
        else (random.integers(0, 1 << 63, 3 * 7 * 9, dtype=np.uint64) * np.uint64(2) + np.uint64(1))
    )
    drawn = some.astype(dtype.storage)
    drawn[: len(patterns(dtype))] = patterns(dtype)
    tensors = {
        f"{dtype.name}.layers.{member}.weight": part for member, part in enumerate(drawn.reshape(3, 7, 9))
    }
    minus = np.full((40,), 1 << (dtype.bits - 1), dtype=dtype.storage)
    tensors[f"{dtype.name}.minus"] = minus
    tensors[f"{dtype.name}.zeros"] = np.zeros((6, 7), dtype=dtype.storage)
    tensors[f"{dtype.name}.ones"] = ~np.zeros((5,), dtype=dtype.storage)
    tensors[f"{dtype.name}.scalar"] = minus[0].reshape(())
    tensors[f"{dtype.name}.empty"] = np.zeros((0, 4), dtype=dtype.storage)
    return tensors


def hostile_weights(limit: int, dtypes: Iterable[str] = tuple(DTYPES)) -> HeldWeights:
    """A model of all these element types with chunks of at most ``limit`` elements."""
    specs: list[TensorSpec] = []
    held: Tensors = {}
    for seed, name in enumerate(dtypes):
        tensors = hostile_tensors(DTYPES[name], seed)
        specs += specs_of(tensors, DTYPES[name])
        held |= tensors
    return HeldWeights(cut_table(specs, limit), held)


async def tensors_of(weights: Weights) -> Tensors:
    """Whole tensors put together from chunks, which must have the box's shape and be unsigned."""
    arrays: Held = {
        number: np.zeros(array.grid.extent, dtype=array.element.storage)
        for number, array in enumerate(weights.table.arrays)
    }
    async for number, _, box, bits in chunks_of(weights):
        assert bits.shape == box.size
        assert bits.dtype == weights.table.arrays[number].element.storage
        arrays[number][box.slices] = bits
    return {
        name: arrays[number][member]
        for number, array in enumerate(weights.table.arrays)
        for member, name in enumerate(array.names)
    }


async def assert_same_bits(found: Weights, wanted: Weights) -> None:
    """Both weights are equal in every bit, tensor by tensor."""
    left, right = await tensors_of(found), await tensors_of(wanted)
    assert left.keys() == right.keys()
    different = [name for name in left if left[name].tobytes() != right[name].tobytes()]
    assert different == []
