"""No kernel touches a byte beyond what it was given: every buffer ends or begins at a closed page."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltastore.kernels.grid import ChunkGrid
from deltastore.kernels.pieces import GridArray, Piece, Pieces
from deltastore.kernels.rows import ListedChanges

from . import encoded, staging
from .backends import COMPILED, REFERENCE, refused_row
from .fences import fenced, fenced_pieces, fenced_staged
from .forging import DAMAGES, damaged
from .memory import ANY, DISJOINT, Memory, filled, memory_of
from .models import Change, change_of, changes, seeds, table_of

sides = st.booleans()
ALONE = [kernels for kernels in COMPILED if kernels.name.endswith(" 1")]
ONE_AND_THREE = [kernels for kernels in COMPILED if kernels.name.endswith((" 1", " 3"))]


def same_views(first: Pieces, second: Pieces) -> bool:
    return all(
        one.view.tobytes() == other.view.tobytes()
        for one, other in zip(first.pieces, second.pieces, strict=True)
    )


@settings(max_examples=55)
@given(change=changes(most=700), behind=sides, seed=seeds)
def test_encoding(change: Change, behind: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    new, old = (
        fenced_pieces(filled(change.table, bits, rng, cuts), behind=behind)
        for bits, cuts in ((change.after, DISJOINT), (change.before, ("whole", "overlapping")))
    )
    chunks = fenced(change.every_chunk(), behind=behind)
    listed = staging.staged_of(change.table, change.after, 0.02, rng, changed_from=change.before)
    before = staging.staged_of(change.table, change.before, 0.0, rng, like=listed).bits
    listing = ListedChanges(fenced_staged(listed, behind=behind), fenced(before, behind=behind))
    found = REFERENCE.encode_changed(new, old, chunks)
    given_list = REFERENCE.encode_listed(change.table, listing, new)
    digests = REFERENCE.digest_chunks(new, chunks).tolist()
    for kernels in ONE_AND_THREE:
        assert encoded.same(kernels.encode_changed(new, old, chunks), found), kernels.name
        assert encoded.same(kernels.encode_listed(change.table, listing, new), given_list), kernels.name
        assert kernels.digest_chunks(new, chunks).tolist() == digests, kernels.name


@settings(max_examples=55)
@given(change=changes(most=700), behind=sides, seed=seeds)
def test_applying(change: Change, behind: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    whole = [filled(change.table, bits, rng, ("whole",)).pieces for bits in (change.after, change.before)]
    patches = REFERENCE.encode_changed(whole[0], whole[1], change.every_chunk())
    rows, body = (fenced(part, behind=behind) for part in (patches.rows, patches.body))
    under = fenced_staged(staging.staged_of(change.table, change.after, 0.1, rng), behind=behind)
    memory = memory_of(change.table, rng, ANY).filled(change.before)
    after = memory.filled(change.after)
    expected = REFERENCE.resolve(memory.pieces, rows, body, under)
    together = REFERENCE.merge(change.table, under, expected[0])[0]
    for kernels in ONE_AND_THREE:
        pieces = fenced_pieces(memory, behind=behind)
        kernels.check(change.table, rows, body)
        staged, differences = kernels.resolve(pieces, rows, body, under)
        assert staging.same(staged, expected[0]), kernels.name
        assert differences.tolist() == expected[1].tolist(), kernels.name
        moved = fenced_staged(staged, behind=behind)
        assert staging.same(kernels.merge(change.table, under, moved)[0], together), kernels.name
        kernels.scatter(pieces, moved)
        assert same_views(pieces, after.pieces), kernels.name
        assert kernels.mismatches(pieces, moved) == 0
        pieces = fenced_pieces(memory, behind=behind)
        kernels.apply(pieces, rows, body)
        assert same_views(pieces, after.pieces), kernels.name


@pytest.mark.parametrize("way", DAMAGES)
@settings(max_examples=12)
@given(change=changes(most=200), behind=sides, seed=seeds)
def test_damaged_packs(way: str, change: Change, behind: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    whole = [filled(change.table, bits, rng, ("whole",)).pieces for bits in (change.after, change.before)]
    patches = REFERENCE.encode_changed(whole[0], whole[1], change.every_chunk())
    if not len(patches.rows):
        return
    rows, body = (fenced(part, behind=behind) for part in damaged(patches.rows, patches.body, way, rng))
    memory = memory_of(change.table, rng, ANY).filled(change.before)
    for kernels in ONE_AND_THREE:
        pieces = fenced_pieces(memory, behind=behind)
        refused_row(partial(kernels.check, change.table, rows, body))
        refused_row(partial(kernels.resolve, pieces, rows, body, None))
        refused_row(partial(kernels.apply, pieces, rows, body))


@pytest.mark.parametrize("behind", [True, False])
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_every_length_around_a_vector(itemsize: int, behind: bool) -> None:
    """Contiguous, reversed and strided memory of 0 to 140 elements, whose every element changed."""
    for elements in [*range(1, 70), 127, 128, 129, 140]:
        rng = np.random.default_rng(elements)
        table = table_of(GridArray(ChunkGrid((1, elements), (1, elements)), itemsize, floating=True))
        change = change_of(table, 1.0 if elements % 2 else 0.1, "edges", rng)
        chunks = change.every_chunk()
        for step in (1, -1, 3):
            new, old = (_strided(change, bits, step, behind) for bits in (change.after, change.before))
            patches = REFERENCE.encode_changed(new, old, chunks)
            rows, body = fenced(patches.rows, behind=behind), fenced(patches.body, behind=behind)
            for kernels in ALONE:
                assert encoded.same(kernels.encode_changed(new, old, chunks), patches), kernels.name
                current = _strided(change, change.before, step, behind)
                kernels.apply(current, rows, body)
                assert same_views(current, new), kernels.name


def _strided(change: Change, tensors: dict[tuple[int, int], np.ndarray], step: int, behind: bool) -> Pieces:
    bits = tensors[0, 0]
    reach = fenced(np.zeros((len(bits) - 1) * abs(step) + 1, bits.dtype), behind=behind)
    view = reach[::step]
    view[...] = bits
    return Pieces(change.table, [Piece(0, 0, (0,), view)])


def test_the_fence_holds() -> None:
    """Where the memory ends, it does: the next page is mapped and closed."""
    memory = Memory(table_of(), [], np.zeros(0, np.uint8))
    assert memory.pieces.pieces == ()
    for behind in (True, False):
        bits = fenced(np.arange(5, dtype=np.uint16), behind=behind)
        assert bits.tolist() == [0, 1, 2, 3, 4]
        assert (bits.ctypes.data if behind else bits.ctypes.data + 10) % 4096 == 0
