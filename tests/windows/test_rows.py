"""Index rows in a temporary file: a disk that fails is told, and what to do about it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deltastore.anchors.sharding import plan_shards
from deltastore.errors import StoreError
from deltastore.format.pack import PackIndex, pack_key
from deltastore.format.records import DeltaRecord
from deltastore.log import Log
from deltastore.replay import fetch_pack_index, read_table
from deltastore.windows.cutting import Window, windows_of
from deltastore.windows.rows import RowFile
from tests.doubles.models import cut_table, tiny_model
from tests.doubles.stores import memory_store
from tests.doubles.training import Trainer


async def indexed() -> tuple[list[Window], PackIndex]:
    """A delta of one pack, and the windows of its model."""
    trainer = await Trainer.create(
        memory_store(), tiny_model(), table=cut_table(tiny_model(), 8), pack_bytes=1 << 20
    )
    await trainer.step(60)
    record = await Log(trainer.store).manifest(1)
    assert isinstance(record, DeltaRecord)
    table = await read_table(trainer.store, record.table)
    index = await fetch_pack_index(trainer.store, 1, record.packs[0], table)
    assert index.where == pack_key(1, record.packs[0].sha256)
    grids = [plan_shards(array, 1 << 20) for array in table.arrays]
    return windows_of(table, grids, None, 64), index


async def test_every_row_once_and_in_its_window() -> None:
    windows, index = await indexed()
    rows = RowFile(windows, chosen=False)
    rows.add(0, 0, index)
    rows.seal()
    found = [np.concatenate([*rows.of(number)]) for number in range(len(windows)) if [*rows.of(number)]]
    together = np.sort(np.concatenate(found)["offset"])
    assert np.array_equal(together, index.offsets[:-1])
    rows.close()


async def test_a_file_that_is_cut_short_is_a_failure_of_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    windows, index = await indexed()
    rows = RowFile(windows, chosen=False)
    rows.add(0, 0, index)
    rows.seal()
    failing: list[OSError] = []

    def pread(*_: Any) -> bytes:
        if failing:
            raise failing[0]
        return b""

    monkeypatch.setattr(os, "pread", pread)
    for error in (None, OSError(5, "Input/output error")):
        failing[:] = [] if error is None else [error]
        with pytest.raises(StoreError, match="set TMPDIR to a folder with room"):
            list(rows.of(0))
    rows.close()


async def test_no_room_for_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    windows, _ = await indexed()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with pytest.raises(StoreError, match="set TMPDIR"):
        RowFile(windows, chosen=False)
