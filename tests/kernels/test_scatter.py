"""Staged bits to memory and to one another: ``scatter``, ``mismatches`` and ``merge``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltastore.errors import InputError
from deltastore.kernels.grid import ChunkGrid
from deltastore.kernels.pieces import GridArray
from deltastore.kernels.rows import ListedChanges, StagedBits

from . import staging
from .backends import COMPILED, REFERENCE, Kernels, each_backend
from .memory import ANY, memory_of
from .models import Change, changes, hostile_bits, seeds, table_of

Bits = np.ndarray[Any, Any]
shares = st.sampled_from([0.0, 0.02, 0.3, 1.0])


@each_backend
@settings(max_examples=55)
@given(change=changes(most=300), share=shares, seed=seeds)
def test_bits_go_to_every_piece_that_holds_them_and_nowhere_else(
    kernels: Kernels, change: Change, share: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    memory = memory_of(change.table, rng, ANY).filled(change.before)
    new = staging.staged_of(change.table, change.after, share, rng)
    result = staging.put(change.table, staging.entries_of(change.table, new), change.before)
    held = memory.held()
    differing = sum(int(((result[key] != bits) * held[key]).sum()) for key, bits in change.before.items())
    assert kernels.mismatches(memory.pieces, new) == differing
    expected = memory.filled(result)
    kernels.scatter(memory.pieces, new)
    assert memory.arena.tobytes() == expected.arena.tobytes()
    assert kernels.mismatches(memory.pieces, new) == 0


@settings(max_examples=55)
@given(change=changes(most=1500), share=shares, seed=seeds)
def test_every_way_to_scatter_gives_the_same_bytes(change: Change, share: float, seed: int) -> None:
    """Over memory in which pieces that hold one element do not agree about it."""
    rng = np.random.default_rng(seed)
    memory = memory_of(change.table, rng, ANY)
    new = staging.staged_of(change.table, change.after, share, rng)
    expected = memory.copy()
    REFERENCE.scatter(expected.pieces, new)
    differing = REFERENCE.mismatches(memory.pieces, new)
    for kernels in COMPILED:
        result = memory.copy()
        assert kernels.mismatches(result.pieces, new) == differing, kernels.name
        assert result.arena.tobytes() == memory.arena.tobytes()
        kernels.scatter(result.pieces, new)
        assert result.arena.tobytes() == expected.arena.tobytes(), kernels.name


@each_backend
@settings(max_examples=55)
@given(change=changes(most=300), shares=st.tuples(shares, shares), seed=seeds)
def test_of_two_the_second_counts(
    kernels: Kernels, change: Change, shares: tuple[float, float], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    table = change.table
    first = staging.staged_of(table, change.before, shares[0], rng)
    second = staging.staged_of(table, change.after, shares[1], rng)
    below, above = (staging.entries_of(table, source) for source in (first, second))
    expected = {place: {**below.get(place, {}), **above.get(place, {})} for place in sorted(below | above)}
    common = sum(len(below[place].keys() & above[place].keys()) for place in below.keys() & above.keys())
    together, overlaps = kernels.merge(table, first, second)
    assert staging.entries_of(table, together) == expected
    assert list(staging.entries_of(table, together)) == list(expected)
    assert staging.same(together, staging.staged(table, expected))
    assert overlaps == common


@settings(max_examples=60)
@given(change=changes(most=800), shares=st.tuples(shares, shares), seed=seeds)
def test_every_way_to_merge_gives_the_same_bytes(
    change: Change, shares: tuple[float, float], seed: int
) -> None:
    """Also with chunks in any order."""
    rng = np.random.default_rng(seed)
    table = change.table
    sources = []
    for tensors, share in zip((change.before, change.after), shares, strict=True):
        entries = staging.entries_of(table, staging.staged_of(table, tensors, share, rng))
        places = [list(entries)[number] for number in rng.permutation(len(entries))]
        sources.append(staging.staged(table, {place: entries[place] for place in places}))
    expected, overlaps = REFERENCE.merge(table, *sources)
    for kernels in COMPILED:
        together, common = kernels.merge(table, *sources)
        assert staging.same(together, expected), kernels.name
        assert common == overlaps


TABLE = table_of(
    GridArray(ChunkGrid((2, 40), (1, 20)), 2, True), GridArray(ChunkGrid((1, 7), (1, 7)), 8, False)
)
BAD_POSITIONS = {
    "twice": [3, 3],
    "descending": [4, 3],
    "one beyond": [0, 20],
    "far beyond": [0, 2**32 - 1],
    "beyond and back": [25, 3],
    "wrapping": [2**31, 2**31 + 1],
}


def with_positions(positions: list[int], number: int) -> StagedBits:
    """Four chunks of two elements each; those of chunk ``number`` stand at ``positions``."""
    entries = {(0, chunk): {1: 0xFFFF, 2: 0xFFFF} for chunk in range(4)}
    new = staging.staged(TABLE, entries)
    changed = new.positions.copy()
    changed[2 * number : 2 * number + 2] = positions
    return replace(new, positions=changed)


@each_backend
@pytest.mark.parametrize("number", [0, 3])
@pytest.mark.parametrize("name", BAD_POSITIONS)
def test_bad_positions_are_refused_before_the_first_write(kernels: Kernels, name: str, number: int) -> None:
    bad = with_positions(BAD_POSITIONS[name], number)
    good = with_positions([1, 2], number)
    memory = memory_of(TABLE, np.random.default_rng(1), ("whole", "blocks"))
    arena = memory.arena.copy()
    calls: list[Any] = [
        lambda: kernels.scatter(memory.pieces, bad),
        lambda: kernels.mismatches(memory.pieces, bad),
        lambda: kernels.merge(TABLE, bad, good),
        lambda: kernels.merge(TABLE, good, bad),
        lambda: kernels.encode_listed(TABLE, ListedChanges(bad, bad.bits), None),
    ]
    for call in calls:
        with pytest.raises(InputError) as caught:
            call()
        assert caught.value.code == "bad_argument"
    assert memory.arena.tobytes() == arena.tobytes()


def test_bad_positions_anywhere_in_a_long_list() -> None:
    """Wherever the one bad position stands, and however the list is shared out."""
    rng = np.random.default_rng(9)
    table = table_of(GridArray(ChunkGrid((1, 5000), (1, 5000)), 1, floating=False))
    positions = np.sort(rng.permutation(5000)[:700]).astype(np.uint32)
    memory = memory_of(table, rng, ("whole",))
    bits = hostile_bits(table.arrays[0], 700, rng)
    sound = staging.staged(table, {(0, 0): dict(zip(positions.tolist(), bits.tolist(), strict=True))})
    for at in (1, 2, 7, 8, 15, 16, 17, 31, 32, 63, 64, 65, 300, 511, 512, 698, 699):
        for bad in (positions[at - 1], 5000, 2**32 - 1):
            if at < 699 and bad == 5000:
                continue
            changed = positions.copy()
            changed[at] = bad
            for kernels in (REFERENCE, *COMPILED):
                arena = memory.arena.copy()
                with pytest.raises(InputError):
                    kernels.scatter(memory.pieces, replace(sound, positions=changed))
                assert memory.arena.tobytes() == arena.tobytes(), kernels.name


@each_backend
def test_chunks_that_no_piece_holds_are_left_out(kernels: Kernels) -> None:
    memory = memory_of(TABLE, np.random.default_rng(1), ("missing",))
    arena = memory.arena.copy()
    new = with_positions([1, 2], 0)
    kernels.scatter(memory.pieces, new)
    assert kernels.mismatches(memory.pieces, new) == 0
    assert memory.arena.tobytes() == arena.tobytes()
