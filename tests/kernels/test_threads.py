"""Calls that are cut into many tasks, calls at the same time, and memory that moves under a call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from deltastore.errors import InputError, PatchError
from deltastore.kernels.grid import ChunkGrid
from deltastore.kernels.pieces import GridArray, Piece, Pieces
from deltastore.kernels.rows import EncodedPatches, ListedChanges, Octets, Rows, StagedBits, chunk_list

from . import encoded, staging
from .backends import COMPILED, REFERENCE, Kernels, refused_row
from .forging import ForgedRun, pack, runs_patch
from .memory import Memory, memory_of
from .models import Change, change_of, every_chunk, table_of

Bits = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Load:
    """Work for many tasks, with the reference's answers."""

    change: Change
    old: Memory
    new: Memory
    patches: EncodedPatches
    staged: StagedBits


@cache
def load(name: str) -> Load:
    """Few great chunks, or thousands of small ones; read only."""
    rng = np.random.default_rng(len(name))
    if name == "great chunks":
        grids = [ChunkGrid((2, 1200, 2500), (1, 401, 2500)), ChunkGrid((1, 999_983), (1, 300_007))]
    else:
        grids = [ChunkGrid((3, 20, 401), (1, 1, 9)), ChunkGrid((2000, 4), (3, 4))]
    table = table_of(*(GridArray(grid, 2, floating=True) for grid in grids))
    change = change_of(table, 0.15, "edges", rng)
    shape = memory_of(table, rng, ("whole", "rows", "blocks"))
    old, new = shape.filled(change.before), shape.filled(change.after)
    patches = REFERENCE.encode_changed(new.pieces, old.pieces, every_chunk(table))
    staged, differences = REFERENCE.resolve(old.pieces, patches.rows, patches.body, None)
    assert differences.tolist() == patches.rows["difference"].tolist()
    return Load(change, old, new, patches, staged)


every_load = pytest.mark.parametrize("name", ["great chunks", "small chunks"])
every_way = pytest.mark.parametrize("kernels", COMPILED, ids=lambda kernels: kernels.name)


@every_load
@every_way
def test_tasks_come_together_to_the_same_bytes(name: str, kernels: Kernels) -> None:
    work = load(name)
    table, rows, body = work.change.table, work.patches.rows, work.patches.body
    chunks = every_chunk(table)
    assert encoded.same(kernels.encode_changed(work.new.pieces, work.old.pieces, chunks), work.patches)
    kernels.check(table, rows, body)
    staged, differences = kernels.resolve(work.old.pieces, rows, body, None)
    assert staging.same(staged, work.staged)
    assert np.array_equal(differences, rows["difference"])
    written = work.old.copy()
    kernels.apply(written.pieces, rows, body)
    assert np.array_equal(written.arena, work.new.arena)
    written = work.old.copy()
    assert kernels.mismatches(written.pieces, staged) == work.patches.changed.sum()
    kernels.scatter(written.pieces, staged)
    assert np.array_equal(written.arena, work.new.arena)
    merged, overlaps = kernels.merge(table, staged, work.staged)
    assert overlaps == len(staged.positions)
    assert np.array_equal(np.sort(merged.positions), np.sort(staged.positions))
    old = kernels.digest_chunks(work.old.pieces, chunks)
    new = kernels.digest_chunks(work.new.pieces, chunks)
    assert (new - old).sum(dtype=np.uint64) == rows["difference"].sum(dtype=np.uint64)


@every_load
@every_way
def test_lists_come_together_to_the_same_bytes(name: str, kernels: Kernels) -> None:
    work = load(name)
    old = np.random.default_rng(1).permutation(work.staged.bits)
    listing = ListedChanges(work.staged, old)
    expected = REFERENCE.encode_listed(work.change.table, listing, work.new.pieces)
    assert encoded.same(kernels.encode_listed(work.change.table, listing, work.new.pieces), expected)


SMALL = table_of(GridArray(ChunkGrid((1, 48_000), (1, 8)), 2, floating=True))


def rows_with(bad: dict[int, bytes]) -> tuple[Rows, Octets]:
    """6000 rows of one element each; those of ``bad`` have other patches."""
    good = runs_patch(8, [ForgedRun(2, 0, [1], [1])])
    return pack([(0, chunk, 1, 0, bad.get(chunk, good)) for chunk in range(6000)])


@every_way
@pytest.mark.parametrize("first", [0, 1, 1000, 2999, 5998, 5999])
def test_the_first_bad_row_is_the_first_whoever_finds_another_before(kernels: Kernels, first: int) -> None:
    """Broken patches, patches that do not fit, and both: by row, not by kind."""
    broken = runs_patch(8, [ForgedRun(3, 0, [1], [1])])
    unfit = runs_patch(8, [ForgedRun(2, 0, [1], [2])])
    weights = np.zeros(48_000, np.uint16)
    pieces = Pieces(SMALL, [Piece(0, 0, (0,), weights)])
    later = range(first, 6000, 700)
    for bad in (dict.fromkeys(later, broken), dict.fromkeys(later, unfit), {first: unfit, 5999: broken}):
        rows, body = rows_with(bad)
        calls: list[Callable[[], object]] = [partial(kernels.resolve, pieces, rows, body, None)]
        if set(bad.values()) == {broken}:
            calls.append(partial(kernels.check, SMALL, rows, body))
            calls.append(partial(kernels.apply, pieces, rows, body))
        for call in calls:
            with pytest.raises(PatchError) as caught:
                call()
            assert caught.value.row == first
            assert not weights.any()
    rows, body = rows_with(dict.fromkeys(later, unfit))
    with pytest.raises(PatchError) as caught:
        kernels.apply(pieces, rows, body)
    assert caught.value.row == first
    chunks = weights.reshape(6000, 8)
    assert not chunks[list(later)].any()
    assert set(chunks[:, 1].tolist()) <= {0, 1}
    assert not np.delete(chunks, 1, axis=1).any()
    assert chunks[:first, 1].all()


@every_way
@pytest.mark.parametrize("first", [0, 3000, 5999])
def test_the_first_chunk_that_cannot_be_encoded(kernels: Kernels, first: int) -> None:
    new = np.ones(48_000, np.uint16)
    whole = Pieces(SMALL, [Piece(0, 0, (0,), new)])
    parts = [Piece(0, 0, (0,), new[: first * 8]), Piece(0, 0, (first * 8 + 1,), new[first * 8 + 1 :])]
    with pytest.raises(InputError, match=f"chunk {first} of array 0") as caught:
        kernels.encode_changed(whole, Pieces(SMALL, parts), every_chunk(SMALL))
    assert caught.value.code == "wrong_memory"


def test_calls_at_the_same_time() -> None:
    """Many callers of one table and one set of pieces, which none of them has used before."""
    work = load("small chunks")
    table = table_of(*work.change.table.arrays)
    old, new = (Memory(table, memory.places, memory.arena) for memory in (work.old, work.new))
    rows, body = work.patches.rows, work.patches.body
    chunks = every_chunk(table)
    ready = threading.Barrier(8)

    def call(number: int) -> bool:
        kernels = COMPILED[number % len(COMPILED)]
        ready.wait()
        for _ in range(3):
            found = kernels.encode_changed(new.pieces, old.pieces, chunks)
            staged, _ = kernels.resolve(old.pieces, rows, body, None)
            kernels.check(table, rows, body)
            written = old.copy()
            kernels.apply(written.pieces, rows, body)
            if not (encoded.same(found, work.patches) and staging.same(staged, work.staged)):
                return False
            if not np.array_equal(written.arena, new.arena):
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(8)))


def while_moving(bits: Bits, values: Bits, act: Callable[[], None]) -> None:
    """Calls ``act`` while another thread writes ``values`` and what stood there before, again and again."""
    before, done = bits.copy(), threading.Event()

    def move() -> None:
        while not done.is_set():
            bits[...] = values
            bits[...] = before

    mover = threading.Thread(target=move)
    mover.start()
    try:
        act()
    finally:
        done.set()
        mover.join()
        bits[...] = before


@pytest.mark.parametrize("kernels", COMPILED, ids=lambda kernels: kernels.name)
@pytest.mark.parametrize("density", [0.02, 0.9])
@pytest.mark.parametrize("step", [1, -1, 2])
def test_weights_that_move_make_no_patch_that_contradicts_itself(
    kernels: Kernels, density: float, step: int
) -> None:
    """What the patch writes has the digest difference of its row, of whatever moment it is."""
    rng = np.random.default_rng(2)
    table = table_of(GridArray(ChunkGrid((1, 200_000), (1, 200_000)), 2, floating=True))
    change = change_of(table, density, "edges", rng)
    old = change.before[0, 0]
    live = np.zeros(200_000 * abs(step), np.uint16)[::step]
    live[...] = old
    new = Pieces(table, [Piece(0, 0, (0,), live)])
    base = Pieces(table, [Piece(0, 0, (0,), old)])
    chunks = chunk_list([0], [0])
    digest_of_old = REFERENCE.digest_chunks(base, chunks)

    def encode() -> None:
        for _ in range(6):
            patches = kernels.encode_changed(new, base, chunks)
            if not len(patches.rows):
                continue
            REFERENCE.check(table, patches.rows, patches.body)
            result = Pieces(table, [Piece(0, 0, (0,), old.copy())])
            REFERENCE.apply(result, patches.rows, patches.body)
            difference = REFERENCE.digest_chunks(result, chunks) - digest_of_old
            assert difference.tolist() == patches.rows["difference"].tolist()

    while_moving(live, change.after[0, 0], encode)


@pytest.mark.parametrize("kernels", COMPILED, ids=lambda kernels: kernels.name)
def test_a_body_that_moves_is_refused_or_written_but_goes_nowhere_else(kernels: Kernels) -> None:
    """Bytes that somebody else writes to: whatever is read when, nothing beyond the pieces moves."""
    work = load("small chunks")
    rows, body = work.patches.rows, work.patches.body.copy()
    rng = np.random.default_rng(4)
    values = body.copy()
    at = rng.integers(0, len(body), len(body) // 200)
    values[at] ^= rng.integers(1, 256, len(at), dtype=np.uint8)
    guards = np.ones(len(work.old.arena), bool)
    for place in work.old.places:
        offsets = place.offsets().ravel()
        guards[offsets] = guards[offsets + 1] = False

    def call() -> None:
        for _ in range(5):
            memory = work.old.copy()
            refused_row(partial(kernels.check, work.change.table, rows, body))
            refused_row(partial(kernels.resolve, memory.pieces, rows, body, None))
            refused_row(partial(kernels.apply, memory.pieces, rows, body))
            assert np.array_equal(memory.arena[guards], work.old.arena[guards])

    while_moving(body, values, call)
