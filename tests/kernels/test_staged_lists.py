"""Staged bits that contradict themselves: refused before anything is read or written beyond their lists."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from deltastore.errors import InputError
from deltastore.kernels.grid import ChunkGrid
from deltastore.kernels.pieces import GridArray, Piece, Pieces
from deltastore.kernels.rows import ListedChanges, chunk_list

from . import staging
from .backends import COMPILED, Kernels
from .forging import ForgedRun, pack, runs_patch
from .models import table_of

SMALL = table_of(GridArray(ChunkGrid((1, 48_000), (1, 8)), 2, floating=True))

BAD_LISTS: dict[str, dict[str, Any]] = {
    "starts beyond the positions": {"starts": np.array([0, 2, 9])},
    "starts that descend": {"starts": np.array([2, 0, 4])},
    "starts below zero": {"starts": np.array([-2, 0, 4])},
    "starts at the ends of 64 bits": {"starts": np.array([-(2**63), 2**63 - 1, -(2**63)])},
    "starts that are too few": {"starts": np.array([0, 4])},
    "offsets beyond the bits": {"offsets": np.array([0, 16, 24])},
    "offsets far beyond the bits": {"offsets": np.array([2**63 - 8, 2**63 - 1, 0])},
    "offsets below zero": {"offsets": np.array([-8, 8, 16])},
    "offsets that are too few": {"offsets": np.array([0])},
}


@pytest.mark.parametrize("kernels", COMPILED, ids=lambda kernels: kernels.name)
@pytest.mark.parametrize("name", BAD_LISTS)
def test_staged_bits_whose_lists_do_not_fit_each_other(kernels: Kernels, name: str) -> None:
    good = staging.staged(SMALL, {(0, 0): {1: 7, 2: 8}, (0, 5): {3: 9, 4: 10}})
    bad = replace(good, **BAD_LISTS[name])
    weights = np.zeros(48_000, np.uint16)
    pieces = Pieces(SMALL, [Piece(0, 0, (0,), weights)])
    rows, body = pack([(0, 0, 1, 0, runs_patch(8, [ForgedRun(2, 0, [1], [1])]))])
    calls: list[Callable[[], object]] = [
        lambda: kernels.scatter(pieces, bad),
        lambda: kernels.mismatches(pieces, bad),
        lambda: kernels.merge(SMALL, bad, good),
        lambda: kernels.merge(SMALL, good, bad),
        lambda: kernels.encode_listed(SMALL, ListedChanges(bad, bad.bits), None),
        lambda: kernels.resolve(pieces, rows, body, bad),
    ]
    for call in calls:
        with pytest.raises(InputError) as caught:
            call()
        assert caught.value.code == "bad_argument"
    assert not weights.any()


@pytest.mark.parametrize("kernels", COMPILED, ids=lambda kernels: kernels.name)
@pytest.mark.parametrize(("array", "chunk"), [(1, 0), (2**32 - 1, 0), (0, 6000), (0, 2**32 - 1)])
def test_staged_bits_of_chunks_that_the_table_has_not(kernels: Kernels, array: int, chunk: int) -> None:
    good = staging.staged(SMALL, {(0, 0): {1: 7}})
    bad = replace(good, chunks=chunk_list([array], [chunk]))
    weights = np.zeros(48_000, np.uint16)
    pieces = Pieces(SMALL, [Piece(0, 0, (0,), weights)])
    calls: list[Callable[[], object]] = [
        lambda: kernels.scatter(pieces, bad),
        lambda: kernels.mismatches(pieces, bad),
        lambda: kernels.merge(SMALL, bad, good),
        lambda: kernels.encode_listed(SMALL, ListedChanges(bad, bad.bits), None),
        lambda: kernels.digest_chunks(pieces, bad.chunks),
    ]
    for call in calls:
        with pytest.raises(InputError) as caught:
            call()
        assert caught.value.code == "bad_argument"
    assert not weights.any()
