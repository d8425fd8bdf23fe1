"""Patches that wait for an outcome: in memory while they are few, else in a file that nobody sees."""

from __future__ import annotations

import gc
import os
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from deltastore.detect import pending
from deltastore.detect.pending import PendingPatches
from deltastore.kernels.rows import ROW, EncodedPatches

Kept = list[tuple[bytes, bytes]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files are made in this test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def batch(seed: int, rows: int, body: int) -> EncodedPatches:
    """Patches of random bytes: what is kept is not looked at."""
    random = np.random.default_rng(seed)
    named = np.frombuffer(random.bytes(rows * ROW.itemsize), ROW)
    return EncodedPatches(named, np.frombuffer(random.bytes(body), np.uint8), np.zeros(rows, np.uint32))


def kept(patches: PendingPatches) -> Kept:
    return [(rows.tobytes(), body.tobytes()) for rows, body in patches]


def given(batches: list[EncodedPatches]) -> Kept:
    return [(one.rows.tobytes(), one.body.tobytes()) for one in batches]


def open_files(folder: Path) -> int:
    """How many files below ``folder`` this process has open, those without a name too."""
    return sum(target.startswith(str(folder)) for target in _targets())


def _targets() -> Iterator[str]:
    for link in Path("/proc/self/fd").iterdir():
        try:
            yield os.readlink(link)
        except FileNotFoundError:  # that of the listing itself
            continue


SMALL = [(3, 10), (0, 0), (1, 0), (5, 1000)]
LARGE = [(1000, 100_000), (2, 7), (0, 0), (50_000, 3), (1, 20 << 20), (3, 3)]
"""Rows and bytes of batches; the latter are more than 16 MiB."""


@pytest.mark.parametrize(("sizes", "files"), [([], 0), (SMALL, 0), (LARGE, 1), (LARGE[::-1], 1)])
def test_what_was_added_comes_back_identical_and_as_often_as_wanted(
    sizes: list[tuple[int, int]], files: int, folder: Path
) -> None:
    patches = PendingPatches()
    batches = [batch(seed, *size) for seed, size in enumerate(sizes)]
    for number, one in enumerate(batches):
        patches.add(one)
        assert kept(patches) == given(batches[: number + 1])
    assert kept(patches) == kept(patches) == given(batches)
    assert open_files(folder) == files
    assert list(folder.iterdir()) == [], "it has no name"
    patches.clear()
    assert kept(patches) == []
    assert open_files(folder) == 0


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_the_bound_is_that_of_rows_and_bodies_together(more: int, folder: Path) -> None:
    patches = PendingPatches()
    first, second = batch(1, 10, 100), batch(2, 20, pending.IN_MEMORY_BYTES - 30 * ROW.itemsize - 100 + more)
    patches.add(first)
    assert open_files(folder) == 0
    patches.add(second)
    assert open_files(folder) == (more > 0)
    assert kept(patches) == given([first, second])


def test_it_is_a_copy() -> None:
    rows, body = np.zeros(4, ROW), np.zeros(9, np.uint8)
    patches = PendingPatches()
    patches.add(EncodedPatches(rows, body, np.zeros(4, np.uint32)))
    rows["length"], body[:] = 7, 7
    (found,) = patches
    assert not found[0]["length"].any()
    assert not found[1].any()


@pytest.mark.parametrize("sizes", [SMALL, LARGE])
def test_after_clearing_it_begins_anew(sizes: list[tuple[int, int]], folder: Path) -> None:
    patches = PendingPatches()
    for again in range(3):
        batches = [batch(10 * again + seed, *size) for seed, size in enumerate(sizes)]
        for one in batches:
            patches.add(one)
        assert kept(patches) == given(batches)
        patches.clear()
        patches.clear()
        assert open_files(folder) == 0


def test_nothing_is_left_of_one_that_is_dropped(folder: Path) -> None:
    """A writer may be dropped with a version in doubt; a warning of an open file would be an error here."""
    patches = PendingPatches()
    patches.add(batch(1, 1, 20 << 20))
    assert open_files(folder) == 1
    watched = weakref.ref(patches)
    del patches
    gc.collect()
    assert watched() is None
    assert open_files(folder) == 0


def test_a_full_disk_is_told_and_leaves_what_can_be_cleared(folder: Path) -> None:
    patches = PendingPatches()
    patches.add(batch(1, 2, 30))
    folder.rmdir()
    with pytest.raises(OSError, match="No such file"):
        patches.add(batch(2, 1, 20 << 20))
    patches.clear()
    folder.mkdir()
    patches.add(batch(3, 1, 20 << 20))
    assert kept(patches) == given([batch(3, 1, 20 << 20)])
    patches.clear()
