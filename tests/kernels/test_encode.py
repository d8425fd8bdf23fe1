"""Changes to patches: they carry what changed and nothing else, and every backend writes the same bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltastore.errors import InputError
from deltastore.kernels.grid import ChunkGrid
from deltastore.kernels.pieces import GridArray, Piece, Pieces
from deltastore.kernels.reference.changed import changed_positions
from deltastore.kernels.rows import ChunkList, EncodedPatches, Encoding, ListedChanges, chunk_list

from . import encoded
from .backends import COMPILED, REFERENCE, Kernels, each_backend
from .memory import COVERING, DISJOINT, Memory, filled
from .models import MOTIONS, Change, change_of, changes, seeds, table_of
from .staging import staged_of

Bits = np.ndarray[Any, Any]


def some_chunks(change: Change, rng: np.random.Generator) -> ChunkList:
    """All chunks of the table in order, or some of them in any order."""
    chunks = change.every_chunk()
    if rng.integers(0, 2) and len(chunks):
        chunks = chunks[rng.permutation(len(chunks))[: rng.integers(1, len(chunks) + 1)]]
    return chunks


def held_only(change: Change, memory: Memory, chunks: ChunkList) -> Change:
    """The change as far as it concerns elements of ``chunks`` that the memory holds."""
    held = memory.held()
    asked = {key: np.zeros(bits.shape, bool) for key, bits in change.before.items()}
    for array, chunk in chunks.tolist():
        box = change.table.arrays[array].grid.box(chunk)
        for member in range(box.start[0], box.start[0] + box.size[0]):
            asked[array, member][(*box.slices[1:], ...)] = True
    after = {
        key: np.where(asked[key] & (held[key] > 0), change.after[key], bits)
        for key, bits in change.before.items()
    }
    return Change(change.table, change.before, after)


def check_encoding(patches: EncodedPatches, change: Change, chunks: ChunkList) -> None:
    """The patches turn ``before`` into ``after``, and rows say what the patches do."""
    rows = patches.rows
    places = encoded.written(change.table, rows, patches.body)
    assert encoded.differences(change.table, rows, change.before, change.after) == rows["difference"].tolist()
    result = encoded.applied(change.table, places, change.before)
    for key, bits in change.after.items():
        assert result[key].tobytes() == bits.tobytes()
    assert all(check == bytes(16) for check in map(bytes, rows["check"]))
    if (rows["encoding"] == Encoding.RUNS).all():
        changed = sum(len(changed_positions(change.before[key], change.after[key])) for key in change.before)
        assert len(places) == changed == rows["count"].sum()
    order = {place: number for number, place in enumerate(chunks.tolist())}
    numbers = [order[place] for place in zip(rows["array"].tolist(), rows["chunk"].tolist(), strict=True)]
    assert numbers == sorted(set(numbers))


@each_backend
@settings(max_examples=50)
@given(change=changes(most=200), seed=seeds)
def test_patches_carry_what_changed_and_nothing_else(kernels: Kernels, change: Change, seed: int) -> None:
    rng = np.random.default_rng(seed)
    new = filled(change.table, change.after, rng, DISJOINT)
    old = filled(change.table, change.before, rng, COVERING)
    chunks = some_chunks(change, rng)
    arenas = new.arena.copy(), old.arena.copy()
    patches = kernels.encode_changed(new.pieces, old.pieces, chunks)
    check_encoding(patches, held_only(change, new, chunks), chunks)
    assert new.arena.tobytes() == arenas[0].tobytes()
    assert old.arena.tobytes() == arenas[1].tobytes()


@settings(max_examples=110)
@given(change=changes(most=2500), seed=seeds)
def test_every_way_to_encode_gives_the_same_bytes(change: Change, seed: int) -> None:
    rng = np.random.default_rng(seed)
    new = filled(change.table, change.after, rng, DISJOINT)
    old = filled(change.table, change.before, rng, COVERING)
    chunks = some_chunks(change, rng)
    expected = REFERENCE.encode_changed(new.pieces, old.pieces, chunks)
    for kernels in COMPILED:
        assert encoded.same(kernels.encode_changed(new.pieces, old.pieces, chunks), expected), kernels.name


@settings(max_examples=60)
@given(change=changes(most=1500), share=st.sampled_from([0.0, 0.02, 0.3, 1.0]), seed=seeds)
def test_every_way_to_encode_a_list_gives_the_same_bytes(change: Change, share: float, seed: int) -> None:
    """Also where a listed element did not change, and where a chunk's list is empty."""
    rng = np.random.default_rng(seed)
    listed = staged_of(change.table, change.after, share, rng, changed_from=change.before)
    listing = ListedChanges(listed, staged_of(change.table, change.before, share, rng, like=listed).bits)
    for whole in (None, filled(change.table, change.after, rng, DISJOINT).pieces):
        expected = REFERENCE.encode_listed(change.table, listing, whole)
        assert (expected.rows["count"] > 0).all()
        for kernels in COMPILED:
            patches = kernels.encode_listed(change.table, listing, whole)
            assert encoded.same(patches, expected), kernels.name


@each_backend
@settings(max_examples=50)
@given(change=changes(most=200), seed=seeds)
def test_a_list_of_what_changed_is_encoded_as_if_found(kernels: Kernels, change: Change, seed: int) -> None:
    rng = np.random.default_rng(seed)
    new = filled(change.table, change.after, rng, ("whole", "rows", "blocks"))
    old = filled(change.table, change.before, rng, COVERING)
    listed = staged_of(change.table, change.after, 0.0, rng, changed_from=change.before)
    before = staged_of(change.table, change.before, 0.0, rng, like=listed).bits
    found = kernels.encode_changed(new.pieces, old.pieces, change.every_chunk())
    assert encoded.same(kernels.encode_listed(change.table, ListedChanges(listed, before), new.pieces), found)
    alone = kernels.encode_listed(change.table, ListedChanges(listed, before), None)
    assert (alone.rows["encoding"] == Encoding.RUNS).all()
    check_encoding(alone, change, change.every_chunk())


@pytest.mark.parametrize("motion", MOTIONS)
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
@pytest.mark.parametrize("floating", [True, False])
def test_every_residue_width(itemsize: int, floating: bool, motion: str) -> None:
    """Chunks of a few thousand elements at each density, so that every set of widths pays somewhere."""
    for number, density in enumerate([0.0005, 0.004, 0.03, 0.2, 0.6, 1.0]):
        rng = np.random.default_rng(number)
        table = table_of(GridArray(ChunkGrid((1, 7000), (1, 3333)), itemsize, floating))
        change = change_of(table, density, motion, rng)
        new = filled(table, change.after, rng, ("whole", "columns"))
        old = filled(table, change.before, rng, ("whole", "columns"))
        chunks = change.every_chunk()
        expected = REFERENCE.encode_changed(new.pieces, old.pieces, chunks)
        for kernels in COMPILED:
            assert encoded.same(kernels.encode_changed(new.pieces, old.pieces, chunks), expected)


@pytest.mark.parametrize("density", [1e-9, 0.0004, 0.02, 0.4, 1.0])
@pytest.mark.parametrize("shape", [(1, 2**20), (1, 1024, 1024), (4, 2**18)])
def test_chunks_of_the_greatest_size(shape: tuple[int, ...], density: float) -> None:
    rng = np.random.default_rng(int(density * 1000))
    table = table_of(GridArray(ChunkGrid(shape, shape), 2, floating=True))
    change = change_of(table, density, "edges" if density < 0.4 else "one step", rng)
    new, old = (filled(table, bits, rng, ("whole", "blocks")) for bits in (change.after, change.before))
    chunks = change.every_chunk()
    expected = REFERENCE.encode_changed(new.pieces, old.pieces, chunks)
    assert len(expected.rows) == 1
    for kernels in COMPILED:
        assert encoded.same(kernels.encode_changed(new.pieces, old.pieces, chunks), expected), kernels.name


@pytest.mark.parametrize("edge", [0, 1, 31, 32, 63, 64, 65535, 65536, 65537, 2**20 - 65, 2**20 - 1])
def test_one_element_anywhere_in_a_great_chunk(edge: int) -> None:
    table = table_of(GridArray(ChunkGrid((1, 2**20), (1, 2**20)), 2, floating=True))
    old = np.zeros((2**20,), np.uint16)
    new = old.copy()
    new[edge] = 1
    pieces = [Pieces(table, [Piece(0, 0, (0,), bits)]) for bits in (new, old)]
    chunks = chunk_list([0], [0])
    expected = REFERENCE.encode_changed(pieces[0], pieces[1], chunks)
    assert expected.rows["count"].tolist() == [1]
    for kernels in COMPILED:
        assert encoded.same(kernels.encode_changed(pieces[0], pieces[1], chunks), expected), kernels.name


def test_many_small_chunks_come_in_the_order_asked_for() -> None:
    rng = np.random.default_rng(5)
    table = table_of(GridArray(ChunkGrid((3, 5000), (1, 5)), 2, floating=True))
    change = change_of(table, 0.1, "edges", rng)
    new, old = (filled(table, bits, rng, ("whole",)) for bits in (change.after, change.before))
    chunks = change.every_chunk()[rng.permutation(3000)]
    expected = REFERENCE.encode_changed(new.pieces, old.pieces, chunks)
    assert 0 < len(expected.rows) < 3000
    for kernels in COMPILED:
        assert encoded.same(kernels.encode_changed(new.pieces, old.pieces, chunks), expected), kernels.name


@each_backend
def test_nothing_asked_for_is_nothing_encoded(kernels: Kernels) -> None:
    table = table_of(GridArray(ChunkGrid((2, 0), (1, 1)), 2, floating=True))
    memory = Memory(table, [], np.zeros(0, np.uint8))
    for patches in (
        kernels.encode_changed(memory.pieces, memory.pieces, chunk_list([], [])),
        kernels.encode_listed(
            table, ListedChanges(staged_of(table, {}, 0, None), np.zeros(0, np.uint8)), None
        ),
    ):
        assert len(patches.rows) == len(patches.body) == 0
    assert kernels.digest_chunks(memory.pieces, chunk_list([], [])).tolist() == []


@each_backend
@pytest.mark.parametrize(
    ("new_boxes", "old_boxes", "chunks", "code"),
    [
        ([(0, 9), (8, 10)], [(0, 10)], [0, 1, 2], "wrong_memory"),
        ([(0, 10), (0, 10)], [(0, 10)], [2], "wrong_memory"),
        ([(0, 10)], [(0, 9)], [0, 1, 2], "wrong_memory"),
        ([(0, 10)], [], [0], "wrong_memory"),
        ([(0, 10)], [(0, 5), (6, 10)], [1], "wrong_memory"),
        ([(0, 10)], [(0, 10)], [0, 3], "bad_argument"),
        ([(0, 10)], [(0, 10)], [2**32 - 1], "bad_argument"),
    ],
)
def test_refused(
    kernels: Kernels,
    new_boxes: list[tuple[int, int]],
    old_boxes: list[tuple[int, int]],
    chunks: list[int],
    code: str,
) -> None:
    table = table_of(GridArray(ChunkGrid((1, 10), (1, 4)), 2, floating=True))
    new, old = (
        Pieces(table, [Piece(0, 0, (low,), np.full(high - low, bits, np.uint16)) for low, high in held])
        for bits, held in ((1, new_boxes), (0, old_boxes))
    )
    with pytest.raises(InputError) as caught:
        kernels.encode_changed(new, old, chunk_list([0] * len(chunks), chunks))
    assert caught.value.code == code


@each_backend
@pytest.mark.parametrize("array", [1, 7, 2**32 - 1])
def test_an_array_that_the_table_has_not_is_refused(kernels: Kernels, array: int) -> None:
    table = table_of(GridArray(ChunkGrid((1, 10), (1, 4)), 2, floating=True))
    pieces = Pieces(table, [Piece(0, 0, (0,), np.zeros(10, np.uint16))])
    with pytest.raises(InputError) as caught:
        kernels.encode_changed(pieces, pieces, chunk_list([array], [0]))
    assert caught.value.code == "bad_argument"
