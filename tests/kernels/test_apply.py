"""Patches to weights: what is written, what is refused, and that nothing else in memory moves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from deltastore.errors import PatchError
from deltastore.kernels.grid import ChunkGrid
from deltastore.kernels.pieces import GridArray, KernelTable, Pieces
from deltastore.kernels.rows import Octets, Rows, StagedBits

from . import encoded, staging
from .backends import BOTH, COMPILED, REFERENCE, Kernels, each_backend
from .forging import DAMAGES, ForgedRun, damaged, pack, runs_patch, sound_pack
from .memory import ANY, COVERING, Memory, filled, memory_of
from .models import Change, change_of, changes, moved, seeds, table_of, tables

Bits = np.ndarray[Any, Any]
Staged = tuple[StagedBits, NDArray[np.uint64]]


def patches_of(change: Change, rng: np.random.Generator) -> tuple[Rows, Octets]:
    """The whole change, in the order of chunks or any other."""
    new, old = (filled(change.table, bits, rng, ("whole",)) for bits in (change.after, change.before))
    chunks = change.every_chunk()
    patches = REFERENCE.encode_changed(new.pieces, old.pieces, chunks[rng.permutation(len(chunks))])
    return patches.rows, patches.body


def resolved(
    kernels: Kernels, pieces: Pieces, rows: Rows, body: Octets, under: StagedBits | None = None
) -> Staged | int:
    """What comes out, or the row that was refused."""
    try:
        return kernels.resolve(pieces, rows, body, under)
    except PatchError as error:
        return error.row


def check_same_resolution(
    pieces: Pieces, rows: Rows, body: Octets, under: StagedBits | None = None
) -> Staged | int:
    """Every backend's answer is the reference's; compiled ones agree to the byte, padding included."""
    expected = resolved(REFERENCE, pieces, rows, body, under)
    for kernels in COMPILED:
        answer = resolved(kernels, pieces, rows, body, under)
        if isinstance(expected, int) or isinstance(answer, int):
            assert answer == expected, kernels.name
            continue
        assert staging.same(answer[0], expected[0]), kernels.name
        assert answer[1].dtype == np.uint64
        assert answer[1].tolist() == expected[1].tolist(), kernels.name
    return expected


def check_same_application(memory: Memory, rows: Rows, body: Octets) -> int | None:
    """Every backend leaves the reference's bytes; a row that does not fit is left alone by all of them."""
    expected = memory.copy()
    refused = applied(REFERENCE, expected, rows, body)
    alone = None if refused is None else rows_alone(memory, rows, body)
    for kernels in (REFERENCE, *COMPILED):
        result = memory.copy()
        assert applied(kernels, result, rows, body) == refused, kernels.name
        if alone is None:
            assert result.arena.tobytes() == expected.arena.tobytes(), kernels.name
            continue
        left = result.arena != memory.arena
        for after in alone:
            left &= result.arena != after
        assert not left.any(), f"{kernels.name} wrote what no sound row says"
    return refused


def applied(kernels: Kernels, memory: Memory, rows: Rows, body: Octets) -> int | None:
    try:
        kernels.apply(memory.pieces, rows, body)
    except PatchError as error:
        return error.row
    return None


def rows_alone(memory: Memory, rows: Rows, body: Octets) -> list[Octets]:
    """The arena after each row by itself, where it fits; none at all where the pack is refused as a whole."""
    try:
        REFERENCE.check(memory.table, rows, body)
    except PatchError:
        return []
    ends = np.cumsum(rows["length"]).tolist()
    arenas = []
    for number, end in enumerate(ends):
        result = memory.copy()
        one = rows[number : number + 1], body[end - int(rows["length"][number]) : end]
        if applied(REFERENCE, result, *one) is None:
            arenas.append(result.arena)
    return arenas


@each_backend
@settings(max_examples=60)
@given(change=changes(most=250), seed=seeds)
def test_a_version_becomes_the_next_wherever_it_stands(kernels: Kernels, change: Change, seed: int) -> None:
    """Apply, apply again, and apply over a mixture of both: the same memory, to the last guard byte."""
    rng = np.random.default_rng(seed)
    rows, body = patches_of(change, rng)
    memory = memory_of(change.table, rng, ANY)
    before, after = memory.filled(change.before), memory.filled(change.after)
    kernels.apply(before.pieces, rows, body)
    assert before.arena.tobytes() == after.arena.tobytes()
    kernels.apply(before.pieces, rows, body)
    assert before.arena.tobytes() == after.arena.tobytes()
    mixed = {
        key: np.where(rng.random(bits.shape) < 0.5, bits, change.after[key]).astype(bits.dtype)
        for key, bits in change.before.items()
    }
    half_way = memory.filled(mixed)
    kernels.apply(half_way.pieces, rows, body)
    assert half_way.arena.tobytes() == after.arena.tobytes()


@each_backend
@settings(max_examples=60)
@given(change=changes(most=250), seed=seeds)
def test_staged_bits_are_the_held_part_of_the_next_version(
    kernels: Kernels, change: Change, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    rows, body = patches_of(change, rng)
    memory = memory_of(change.table, rng, ANY).filled(change.before)
    arena = memory.arena.copy()
    staged, differences = kernels.resolve(memory.pieces, rows, body, None)
    assert memory.arena.tobytes() == arena.tobytes()
    held = memory.held()
    entries = staging.entries_of(change.table, staged)
    written = encoded.written(change.table, rows, body)
    assert sum(map(len, entries.values())) == sum(
        bool(held[array, member][place]) for array, member, place in written
    )
    assert list(entries) == [(array, chunk) for array, chunk, *_ in rows.tolist()]
    for (array, chunk), bits in entries.items():
        assert bits == staging.bits_at(change.table, change.after, array, chunk, bits)
    part = {
        key: np.where(held[key] > 0, bits, change.before[key]).astype(bits.dtype)
        for key, bits in change.after.items()
    }
    assert encoded.differences(change.table, rows, change.before, part) == differences.tolist()
    kernels.scatter(memory.pieces, staged)
    assert memory.arena.tobytes() == memory.filled(change.after).arena.tobytes()
    assert kernels.mismatches(memory.pieces, staged) == 0


@settings(max_examples=70)
@given(change=changes(most=1500), seed=seeds)
def test_every_way_to_apply_gives_the_same_bytes(change: Change, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, body = patches_of(change, rng)
    memory = memory_of(change.table, rng, ANY).filled(change.before)
    assert not isinstance(check_same_resolution(memory.pieces, rows, body), int)
    assert check_same_application(memory, rows, body) is None


@settings(max_examples=70)
@given(table=tables(120), narrow=st.booleans(), seed=seeds)
def test_any_sound_patch_over_any_weights(table: KernelTable, narrow: bool, seed: int) -> None:
    """Foreign weights, other bits in every piece that holds an element: all backends see the same."""
    rng = np.random.default_rng(seed)
    rows, body = sound_pack(table, rng)
    memory = memory_of(table, rng, ANY)
    if narrow:  # few elements, so that all of them may fit
        rows, body = pack([(*entry[:2], 1, 0, _one_run(table, entry, rng)) for entry in rows.tolist()])
    check_same_resolution(memory.pieces, rows, body)
    check_same_application(memory, rows, body)


def _one_run(table: KernelTable, entry: tuple[int, ...], rng: np.random.Generator) -> bytes:
    array = table.arrays[entry[0]]
    elements = array.grid.box(entry[1]).elements
    width = int(rng.choice([width for width in (4, 8, 16, 32, 64) if width <= array.bits]))
    residue = int.from_bytes(rng.bytes(8), "little") % 2**width
    return runs_patch(elements, [ForgedRun(width, 0, [int(rng.integers(0, elements))], [residue])])


@pytest.mark.parametrize("way", DAMAGES)
@settings(max_examples=15)
@given(change=changes(most=200), seed=seeds)
def test_damaged_packs_over_the_right_weights(way: str, change: Change, seed: int) -> None:
    """A refused pack leaves every byte where it was, or never was one that breaks a rule by itself."""
    rng = np.random.default_rng(seed)
    rows, body = patches_of(change, rng)
    if not len(rows):
        return
    rows, body = damaged(rows, body, way, rng)
    if len({(array, chunk) for array, chunk, *_ in rows.tolist()}) < len(rows):
        return
    memory = memory_of(change.table, rng, ANY).filled(change.before)
    check_same_resolution(memory.pieces, rows, body)
    check_same_application(memory, rows, body)


@settings(max_examples=60)
@given(change=changes(most=400), share=st.sampled_from([0.0, 0.1, 1.0]), seed=seeds)
def test_deltas_on_deltas(change: Change, share: float, seed: int) -> None:
    """A second delta over bits that are staged but not written, alone and as one write with the first."""
    rng = np.random.default_rng(seed)
    table = change.table
    later = change_of(table, float(rng.choice([0.02, 0.5, 1.0])), "edges", rng)
    steps = {
        key: np.where(later.before[key] != later.after[key], later.after[key], bits).astype(bits.dtype)
        for key, bits in change.after.items()
    }
    first = patches_of(change, rng)
    second = patches_of(Change(table, change.after, steps), rng)
    memory = memory_of(table, rng, ANY).filled(change.before)
    under = staging.staged_of(table, change.after, share, rng, changed_from=change.before)
    resolution = check_same_resolution(memory.pieces, *second, under)
    assert not isinstance(resolution, int)
    held_first, _ = REFERENCE.resolve(memory.pieces, *first, None)
    again = check_same_resolution(memory.pieces, *second, held_first)
    assert not isinstance(again, int)
    assert resolution[1].tolist() == again[1].tolist()
    for kernels in BOTH:
        result = memory.copy()
        together, _ = kernels.merge(table, held_first, again[0])
        kernels.scatter(result.pieces, together)
        assert result.arena.tobytes() == memory.filled(steps).arena.tobytes()


@settings(max_examples=60)
@given(change=changes(most=300), seed=seeds)
def test_bits_under_a_delta_that_are_of_no_version(change: Change, seed: int) -> None:
    """Whatever is staged below, every backend takes it for what stands in memory."""
    rng = np.random.default_rng(seed)
    table = change.table
    other = {
        key: moved(table.arrays[key[0]], bits.ravel(), "edges", rng).reshape(bits.shape)
        for key, bits in change.before.items()
    }
    memory = memory_of(table, rng, ANY).filled(change.before)
    under = staging.staged_of(table, other, 0.2, rng)
    check_same_resolution(memory.pieces, *patches_of(change, rng), under)


@each_backend
def test_a_pack_is_refused_as_a_whole(kernels: Kernels) -> None:
    """The last of many rows breaks a rule: not one byte of the others was written."""
    rng = np.random.default_rng(3)
    table = table_of(GridArray(ChunkGrid((4, 900), (1, 9)), 2, floating=True))
    change = change_of(table, 0.4, "edges", rng)
    rows, body = patches_of(change, rng)
    rows["count"][-1] += 1
    memory = filled(table, change.before, rng, COVERING)
    arena = memory.arena.copy()
    assert applied(kernels, memory, rows, body) == len(rows) - 1
    assert memory.arena.tobytes() == arena.tobytes()


@each_backend
def test_no_rows(kernels: Kernels) -> None:
    table = table_of(GridArray(ChunkGrid((2, 4), (1, 4)), 2, floating=True))
    memory = memory_of(table, np.random.default_rng(0), ("whole",))
    arena = memory.arena.copy()
    rows, body = pack([])
    kernels.check(table, rows, body)
    kernels.apply(memory.pieces, rows, body)
    staged, differences = kernels.resolve(memory.pieces, rows, body, None)
    assert staging.entries_of(table, staged) == {}
    assert differences.shape == (0,)
    assert differences.dtype == np.uint64
    kernels.scatter(memory.pieces, staged)
    assert kernels.mismatches(memory.pieces, staged) == 0
    assert memory.arena.tobytes() == arena.tobytes()


@pytest.mark.parametrize("density", [1e-9, 0.01, 1.0])
@pytest.mark.parametrize("shape", [(1, 2**20), (1, 2**10, 2**10), (4, 2**18)])
def test_chunks_of_the_greatest_size(shape: tuple[int, ...], density: float) -> None:
    rng = np.random.default_rng(17)
    table = table_of(GridArray(ChunkGrid(shape, shape), 2, floating=True))
    change = change_of(table, density, "edges", rng)
    rows, body = patches_of(change, rng)
    memory = memory_of(table, rng, ("rows", "blocks")).filled(change.before)
    after = memory.filled(change.after)
    assert not isinstance(check_same_resolution(memory.pieces, rows, body), int)
    for kernels in COMPILED:
        result = memory.copy()
        kernels.apply(result.pieces, rows, body)
        assert np.array_equal(result.arena, after.arena), kernels.name
