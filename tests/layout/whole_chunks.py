"""What engines' processes need of a table: whole chunks, of slabs of their own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from deltastore.format.limits import CHUNK_ELEMENTS
from deltastore.format.table import Array, TensorTable

__all__ = ["Config", "check_chunks", "check_expert_parallel", "check_tensor_parallel", "divisors"]

Config = dict[str, Any]

REPLICATED = (
    "norm.weight",
    ".gate.weight",
    "layernorm.weight",
    ".bias",
    "_bias",
    "q_a_proj.weight",
    "with_mqa.weight",
    "eh_proj.weight",
)


def shard_of(config: Config, array: Array, degree: int, rank: int) -> tuple[int, int, int] | None:
    """(tensor axis, first, end) of what an engine's tensor-parallel rank holds; None: the whole tensor.

    Written from what engines do, knowing nothing of cells. ``LookupError`` where they refuse the degree.
    """
    name = array.pattern
    if name.endswith(REPLICATED):
        return None
    axis = 1 if name.endswith(("o_proj.weight", "down_proj.weight")) else 0
    if name.endswith(("k_proj.weight", "v_proj.weight")):
        heads = config["num_key_value_heads"]
        if heads < degree:
            if degree % heads:
                raise LookupError
            degree, rank = heads, rank // (degree // heads)
        units = heads
    elif "_proj" in name and "mlp" not in name:
        units = config["num_attention_heads"]
    elif name.endswith(("embed_tokens.weight", "lm_head.weight")):
        units = -(-array.shape[0] // 64) * 64
    else:
        units = array.shape[axis]
    if units % degree:
        raise LookupError
    length = units if name.endswith(("embed_tokens.weight", "lm_head.weight")) else array.shape[axis]
    return (
        axis,
        min(rank * length // degree, array.shape[axis]),
        min((rank + 1) * length // degree, array.shape[axis]),
    )


def spans(array: Array, axis: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Numbers of all chunks, and where each starts and ends along a tensor axis."""
    chunks = np.arange(len(array.grid), dtype=np.int64)
    first = array.grid.coordinate_along(chunks, 1 + axis) * array.chunk[1 + axis]
    return chunks, first, np.minimum(first + array.chunk[1 + axis], array.shape[axis])


def check_tensor_parallel(config: Config, table: TensorTable, degree: int, *, experts: bool) -> int:
    """Every rank's part of every array is whole chunks, in its slabs or the common one. Returns how many."""
    checked = 0
    for array in table.arrays:
        if ".experts." in array.pattern and not experts:
            continue
        for rank in range(degree):
            try:
                shard = shard_of(config, array, degree, rank)
            except LookupError:
                break
            if shard is None:
                assert array.slab.by == "common", array.pattern
                break
            axis, low, high = shard
            chunks, first, end = spans(array, axis)
            met = (first < high) & (end > low)
            assert bool(((first >= low) & (end <= high))[met].all()), (array.pattern, degree, rank)
            slabs = array.slabs(chunks[met], table.slabs)
            mine = set(range(1 + rank * table.slabs // degree, 1 + (rank + 1) * table.slabs // degree))
            assert array.slab.by == "axis"
            heads = config["num_key_value_heads"]
            if array.pattern.endswith(("k_proj.weight", "v_proj.weight")) and heads < degree:
                mine = {1 + rank * heads // degree * table.slabs // heads}
            assert set(np.unique(slabs).tolist()) <= mine, (array.pattern, degree, rank)
            checked += 1
    return checked


def check_expert_parallel(config: Config, table: TensorTable, degree: int) -> int:
    experts = config.get("num_experts") or config["n_routed_experts"]
    arrays = [array for array in table.arrays if ".experts." in array.pattern]
    for array in arrays:
        assert array.chunk[0] == 1
        chunks = np.arange(len(array.grid), dtype=np.int64)
        numbers = np.array([index[-1] for index in array.indexes()], dtype=np.int64)
        expert = numbers[array.grid.coordinate_along(chunks, 0)]
        slabs = array.slabs(chunks, table.slabs)
        for rank in range(degree):
            held = (expert >= rank * experts // degree) & (expert < (rank + 1) * experts // degree)
            mine = range(1 + rank * table.slabs // degree, 1 + (rank + 1) * table.slabs // degree)
            assert set(np.unique(slabs[held]).tolist()) <= set(mine)
    return len(arrays)


def check_chunks(table: TensorTable) -> None:
    for array in table.arrays:
        assert math.prod(array.chunk) <= CHUNK_ELEMENTS
        assert all(step <= length for step, length in zip(array.chunk, array.grid.extent, strict=True))


def divisors(number: int) -> Iterator[int]:
    return (one for one in range(1, number + 1) if number % one == 0)
