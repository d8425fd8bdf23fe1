"""The digest of chunks: the specification's sum over what is held, and every backend's the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from deltastore.kernels.grid import ChunkGrid
from deltastore.kernels.pieces import GridArray

from . import plain
from .backends import COMPILED, REFERENCE, Kernels, each_backend
from .memory import ANY, memory_of
from .models import Change, change_of, changes, every_chunk, seeds, table_of


@each_backend
@settings(max_examples=60)
@given(change=changes(most=250), seed=seeds)
def test_every_held_element_counts_as_often_as_it_is_held(
    kernels: Kernels, change: Change, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    memory = memory_of(change.table, rng, ANY).filled(change.before)
    held = memory.held()
    chunks = change.every_chunk()
    chunks = chunks[rng.permutation(len(chunks))]
    digests = kernels.digest_chunks(memory.pieces, chunks)
    assert digests.dtype == np.uint64
    expected = []
    for array, chunk in chunks.tolist():
        grid, tensor_seeds = change.table.arrays[array].grid, change.table.seeds(array).tolist()
        start, size = plain.chunk_box(grid.extent, grid.chunk, chunk)
        total = 0
        for position in range(int(np.prod(size))):
            member, place, flat = plain.element_of(grid.extent, start, size, position)
            times = int(held[array, member][place])
            bits = int(change.before[array, member][place])
            total += times * bits * plain.weight(flat, tensor_seeds[member])
        expected.append(total % plain.MODULUS)
    assert digests.tolist() == expected


@settings(max_examples=60)
@given(change=changes(most=5000), seed=seeds)
def test_every_way_to_sum_gives_the_same(change: Change, seed: int) -> None:
    rng = np.random.default_rng(seed)
    memory = memory_of(change.table, rng, ANY)
    chunks = change.every_chunk()
    expected = REFERENCE.digest_chunks(memory.pieces, chunks).tolist()
    for kernels in COMPILED:
        assert kernels.digest_chunks(memory.pieces, chunks).tolist() == expected, kernels.name


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
@pytest.mark.parametrize("extent", [(1, 2**20), (2, 700, 1500), (3, 40_000), (1, 2047, 2), (1, 2, 2049)])
def test_blocks_of_the_digest_and_runs_of_memory_in_any_phase(extent: tuple[int, ...], itemsize: int) -> None:
    rng = np.random.default_rng(itemsize)
    chunk = (*(min(axis, 3) for axis in extent[:-1]), min(extent[-1], 300_000))
    table = table_of(GridArray(ChunkGrid(extent, chunk), itemsize, floating=True))
    change = change_of(table, 0.0, "one step", rng)
    memory = memory_of(table, rng, ("whole", "rows", "columns", "blocks", "clipped")).filled(change.before)
    chunks = every_chunk(table)
    expected = REFERENCE.digest_chunks(memory.pieces, chunks).tolist()
    for kernels in COMPILED:
        assert kernels.digest_chunks(memory.pieces, chunks).tolist() == expected, kernels.name
