"""Each attack against every way that reads: a named error in a line, nothing written, nothing wrong read."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import (
    against_anchors,
    against_entries,
    against_inventories,
    against_json,
    against_log,
    against_metadata,
    against_packs,
    against_patches,
    against_tables,
    against_trust,
)
from .attack import Attack, failures_of
from .mutants import in_one_thread

ROOMS = (
    against_json,
    against_log,
    against_tables,
    against_packs,
    against_entries,
    against_patches,
    against_anchors,
    against_inventories,
    against_metadata,
    against_trust,
)
EVERY = [one for room in ROOMS for one in room.attacks()]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("one", EVERY, ids=lambda one: one.name)
async def test_an_attack(one: Attack, tmp_path: Path) -> None:
    with in_one_thread():
        assert await failures_of(one, tmp_path) == []


@pytest.mark.timeout(200)
async def test_the_decoder_of_the_specification_refuses_the_same(tmp_path: Path) -> None:
    """Some of each kind; every one of them takes a while."""
    for number, one in enumerate(EVERY[::4]):
        (tmp_path / str(number)).mkdir()
        if one.lie is None:
            assert await failures_of(one, tmp_path / str(number), ["decoder"]) == [], one.name
