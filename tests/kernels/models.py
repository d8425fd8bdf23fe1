"""Weights that hurt: tables of any shape, bits of any kind, changes of any width."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from deltastore.kernels.grid import ChunkGrid
from deltastore.kernels.pieces import GridArray, KernelTable
from deltastore.kernels.reference.ordered import ordered
from deltastore.kernels.rows import ChunkList, chunk_list

from . import plain

Bits = np.ndarray[Any, Any]
Tensors = dict[tuple[int, int], Bits]
"""The bits of every tensor, by (array, member)."""

WIDTHS = (2, 4, 8, 16, 32, 64)
DENSITIES = (0.0, 1e-9, 0.001, 0.02, 0.3, 1.0)
"""0: nothing changes; 1e-9: one element in all."""

MOTIONS = ("one step", "edges", "one width", "hostile", "random", "sign flips")

seeds = st.integers(0, 2**32 - 1)


@dataclass(frozen=True)
class Change:
    """A table, and the bits of all its tensors before and after."""

    table: KernelTable
    before: Tensors
    after: Tensors

    def every_chunk(self) -> ChunkList:
        """All chunks of the table, in order."""
        return every_chunk(self.table)


def every_chunk(table: KernelTable) -> ChunkList:
    pairs = [(number, chunk) for number, array in enumerate(table.arrays) for chunk in range(len(array.grid))]
    return chunk_list([array for array, _ in pairs], [chunk for _, chunk in pairs])


def member_seeds(array: int, members: int) -> Bits:
    """Any odd numbers, others for each member."""
    return np.array([plain.mix(1000 * array + member) | 1 for member in range(members)], np.uint64)


def table_of(*arrays: GridArray) -> KernelTable:
    return KernelTable(arrays, lambda array: member_seeds(array, arrays[array].grid.extent[0]))


@st.composite
def grid_arrays(draw: st.DrawFn, most: int) -> GridArray:
    """Up to ``most`` elements; any rank that the format has, but seldom above 4."""
    rank = draw(st.sampled_from([0, 1, 1, 2, 2, 2, 3, 3, 4, 16]))
    extent = [draw(st.sampled_from([1, 1, 2, 3, 5]))]
    room = max(most // extent[0], 1)
    for _ in range(rank):
        axis = draw(st.sampled_from([1, 2, 3, 4, 7, 8, 33, 65, 200, 0] if rank < 5 else [1, 1, 1, 2, 3]))
        axis = min(axis, room)
        room = max(room // max(axis, 1), 1)
        extent.append(axis)
    if rank == 1 and draw(st.booleans()):
        extent[-1] = max(most // extent[0] - draw(st.integers(0, 3)), 1)
    cut = draw(st.sampled_from(["whole", "single", "any", "any", "any"]))
    chunk = [
        axis + draw(st.integers(0, 1)) or 1
        if cut == "whole"
        else 1
        if cut == "single" and math.prod(extent) <= 64
        else draw(st.integers(1, axis + 1))
        for axis in extent
    ]
    itemsize = draw(st.sampled_from([1, 2, 2, 2, 4, 8]))
    return GridArray(ChunkGrid(tuple(extent), tuple(chunk)), itemsize, draw(st.booleans()))


def tables(most: int = 600) -> st.SearchStrategy[KernelTable]:
    return st.lists(grid_arrays(most), min_size=1, max_size=3).map(lambda arrays: table_of(*arrays))


@st.composite
def changes(draw: st.DrawFn, most: int = 600) -> Change:
    table = draw(tables(most))
    density, motion = draw(st.sampled_from(DENSITIES)), draw(st.sampled_from(MOTIONS))
    return change_of(table, density, motion, np.random.default_rng(draw(seeds)))


def change_of(table: KernelTable, density: float, motion: str, rng: np.random.Generator) -> Change:
    before, after = {}, {}
    for number, array in enumerate(table.arrays):
        members, *shape = array.grid.extent
        for member in range(members):
            old = hostile_bits(array, math.prod(shape), rng)
            chosen = rng.random(old.size) < density
            if density and old.size:
                chosen[rng.integers(0, old.size)] = True
            new = old.copy()
            new[chosen] = moved(array, old[chosen], motion, rng)
            before[number, member], after[number, member] = old.reshape(shape), new.reshape(shape)
    return Change(table, before, after)


def special_values(array: GridArray) -> Bits:
    """Zeros of both signs, edges of subnormals and infinities, NaN payloads; or edges of integers."""
    top = 1 << (array.bits - 1)
    if array.bits == 8:
        return np.arange(256, dtype=np.uint8)
    if not array.floating:
        return np.array([0, 1, 2, top - 1, top, top + 1, 2 * top - 2, 2 * top - 1], array.storage)
    one = 1 << {16: 7, 32: 23, 64: 52}[array.bits]
    infinity, quiet = top - one, one // 2
    positive = [0, 1, 2, one - 1, one, one + 1, infinity - 1, infinity, infinity + 1]
    positive += [infinity + quiet - 1, infinity + quiet, infinity + quiet + 1, top - 1]
    return np.array(positive + [value + top for value in positive], array.storage)


def random_bits(array: GridArray, count: int, rng: np.random.Generator) -> Bits:
    return rng.integers(0, 256, count * array.itemsize, dtype=np.uint8).view(array.storage)


def hostile_bits(array: GridArray, count: int, rng: np.random.Generator) -> Bits:
    special = rng.choice(special_values(array), count)
    return np.where(rng.random(count) < 0.5, random_bits(array, count, rng), special).astype(array.storage)


def moved(array: GridArray, bits: Bits, motion: str, rng: np.random.Generator) -> Bits:
    """Other bits for each element, by one of ``MOTIONS``; every element does change."""
    if motion == "sign flips":
        flipped: Bits = bits ^ array.storage.type(1 << (array.bits - 1))
        return flipped
    if motion in ("hostile", "random"):
        special = rng.choice(special_values(array), bits.size)
        new = special if motion == "hostile" else random_bits(array, bits.size, rng)
    else:
        steps = rng.choice(_steps(array, motion, rng), bits.size)
        new = ordered(ordered(bits, floating=array.floating) + steps, floating=array.floating)
    return np.where(new == bits, new ^ array.storage.type(1), new).astype(array.storage)


def _steps(array: GridArray, motion: str, rng: np.random.Generator) -> Bits:
    """Steps in ordered-integer space, modulo 2**W. The edges of width w lie at 2**(w-1)."""
    narrow = [width for width in WIDTHS if width < array.bits]
    if motion == "one step":
        reach = [1]
    elif motion == "one width":
        half = 1 << (int(rng.choice(narrow)) - 1)
        reach = [half - 1, half - 1 or 1, half // 2 or 1]
    else:
        reach = [(1 << (width - 1)) + by for width in narrow for by in (-1, 0, 1)]
    steps = [step * sign % (1 << array.bits) for step in reach for sign in (1, -1) if step]
    return np.array(steps, array.storage)
