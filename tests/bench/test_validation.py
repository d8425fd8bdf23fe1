"""The benchmark of validation: every figure comes out, beside its ceiling, and nothing stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deltastore.bench.figure import Figure
from deltastore.bench.validation import ValidationPlan, measure_validation
from deltastore.errors import StoreError
from deltastore.stores.memory import MEMORY_STORES
from tests.cli.running import run_here
from tests.doubles.models import tiny_model
from tests.doubles.stores import contents, flipped, memory_store
from tests.doubles.training import Trainer

PLAN = ValidationPlan(nbytes=300_000, jobs=2, versions=4, repeats=1)


async def measured(url: str) -> list[Figure]:
    return [figure async for figure in measure_validation(url, PLAN)]


def check_figures(found: list[Figure]) -> None:
    assert all(figure.value > 0 for figure in found)
    for figure in found:
        assert (figure.ratio is not None) == figure.name.startswith("content")


async def test_streams_that_are_made(tmp_path: Path) -> None:
    found = await measured(f"file://{tmp_path}/place")
    check_figures(found)
    names = [figure.name for figure in found]
    assert names.count("content of deltas, 2 jobs") == names.count("content of an anchor, 2 jobs") == 2
    memory = [figure for figure in found if figure.name.startswith("memory")]
    assert [figure.reached for figure in memory] == [True, True]
    assert names[-1] == "structure of 4 versions"
    assert not list(tmp_path.rglob("*.json"))


async def test_a_stream_that_is_there_is_only_read() -> None:
    trainer = await Trainer.create(memory_store(), tiny_model())
    await trainer.step()
    before = await contents(trainer.store)
    found = await measured(trainer.store.url)
    check_figures(found)
    assert not any(figure.name.startswith(("memory", "structure")) for figure in found)
    assert await contents(trainer.store) == before
    pack = next(key for key in before if key.startswith("packs/"))
    await trainer.store.put(pack, flipped(before[pack], 80))
    with pytest.raises(StoreError, match="not sound"):
        await measured(trainer.store.url)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--megabytes", "1", "--versions", "3", "--jobs", "1", "--repeats", "1")
    ran = run_here(capsys, "bench", "validate", "memory://measured", *options)
    assert (ran.status, ran.err) == (0, "")
    assert "content of deltas, 1 jobs" in ran.out
    ran = run_here(capsys, "bench", "validate", "memory://measured", *options, "--json")
    assert {"name", "value", "unit", "ratio", "reached"} < json.loads(ran.out.splitlines()[0]).keys()
    assert not any(name.startswith("measured/") for name in MEMORY_STORES)
