"""Rows in the order of their keys, whatever fits into memory at once."""

from __future__ import annotations

import itertools
import os
import tempfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from deltastore.errors import StoreError
from deltastore.validate.objects import spooled
from deltastore.validate.objects.spooled import PLACED, SpooledRows


def rows_of(random: np.random.Generator, count: int, keys: int) -> np.ndarray:
    rows = np.zeros(count, PLACED)
    rows["key"] = random.integers(0, keys, count, np.uint64) << np.uint64(40)
    rows["offset"] = random.integers(0, 1 << 40, count)
    return rows


@pytest.mark.parametrize("run", [3, 40, 1 << 16])
@pytest.mark.parametrize("step", [1, 64])
@pytest.mark.parametrize("keys", [1, 5, 1 << 20])
def test_all_rows_come_once_and_in_order(
    run: int, step: int, keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spooled, "_LEAST_STEP", step)
    random = np.random.default_rng(run + step)
    rows = rows_of(random, 200, keys)
    with closing(SpooledRows(len(rows), run=run)) as kept:
        for part in np.split(rows, [1, 50, 51, 120]):
            for start in range(0, len(part), run):
                kept.add(part[start : start + run])
        parts = list(kept.parts())
    assert np.array_equal(np.concatenate(parts), rows[np.argsort(rows["key"], kind="stable")])
    for before, after in itertools.pairwise(parts):
        assert before["key"][-1] < after["key"][0], "those of one key come together"
    if keys > 200:
        assert max(map(len, parts)) <= 4 * max(run, step)


def test_a_full_or_absent_folder_is_an_error_of_the_store(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = rows_of(np.random.default_rng(0), 10, 100)

    def full(*_: object) -> bytes:
        raise OSError(28, "No space left on device")

    with closing(SpooledRows(10, run=5)) as kept, monkeypatch.context() as patched:
        kept.add(rows[:5])
        patched.setattr(os, "pread", full)
        with pytest.raises(StoreError, match=r"No space left.*TMPDIR"):
            list(kept.parts())
    with closing(SpooledRows(10, run=5)) as kept, monkeypatch.context() as patched:
        kept.add(rows[:5])
        patched.setattr(os, "pread", lambda *_: b"")
        with pytest.raises(StoreError, match="cut short"):
            list(kept.parts())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(StoreError, match="TMPDIR"):
        SpooledRows(10, run=5)
