"""Mutants of sound streams: each is reported, or proved harmless."""

from __future__ import annotations

import asyncio

import pytest

from deltastore.validate import CHECKS, Conduct, Level, validate
from tests.doubles.stores import copied

from .damage import damage_of
from .forgery import forgery_of
from .mutants import main, tally_of
from .regions import regions_of
from .resealing import Rewriting, records_of
from .samples import samples

COUNT = 600


@pytest.mark.timeout(280)
def test_every_mutant_is_reported_or_proved_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    tally = asyncio.run(tally_of(seed=1, count=COUNT))
    assert tally.wrong == []
    assert tally.total == COUNT
    reported = sum(found[level.name.lower()] for found in tally.counts.values() for level in Level)
    assert reported > 0.8 * COUNT
    assert all(sum(found[level.name.lower()] for found in tally.counts.values()) for level in Level)
    assert len(tally.checks) > 25
    assert tally.checks.keys() <= {
        one.id for one in CHECKS.values() if not isinstance(one.judged, Conduct)
    } | {"DS006"}


async def test_samples_are_sound_and_have_regions_of_every_kind() -> None:
    grown = await samples()
    kinds: set[str] = set()
    for sample in grown:
        report = await validate(await copied(sample.objects), level=Level.DEEP)
        assert report.problems == ()
        assert Rewriting(sample.objects).done() == sample.objects
        found = regions_of(sample.objects)
        kinds |= found.keys()
        for regions in found.values():
            for region in regions:
                assert 0 <= region.start < region.end <= len(sample.objects[region.key])
    assert {"low section", "high section", "residues", "raw patch", "sums", "chunk", "shard index"} <= kinds
    records = [record for sample in grown for record in records_of(sample.objects)]
    assert {record["kind"] for record in records} == {
        "birth",
        "epoch",
        "anchor",
        "delta",
        "label.of.tomorrow",
    }
    assert any("certificate" in record.get("statistics", {}) for record in records)
    assert any(len(record.get("packs", [])) > 2 for record in records)
    widths = {
        sample.objects[one.key][one.start]
        for sample in grown
        for one in regions_of(sample.objects).get("run width", [])
    }
    assert widths == {2, 4, 8, 16, 32, 64}


async def test_samples_and_mutants_are_the_same_at_every_run() -> None:
    first, second = await samples(), await samples()
    assert [sample.objects for sample in first] == [sample.objects for sample in second]
    kinds = {**damage_of(first), **forgery_of(first)}
    assert len(kinds) > 60
    assert list(kinds) == list({**damage_of(second), **forgery_of(second)})


def test_the_command_prints_a_table_and_fails_on_what_is_not_proved(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["--seed", "2", "--count", "20"]) == 0
    shown = capsys.readouterr().out
    assert "20 mutants" in shown
    assert "another sound history" in shown

    async def nothing(*_: object) -> None:
        return None

    monkeypatch.setattr("tests.attacks.oracle.reported", nothing)
    assert main(["--seed", "2", "--count", "20"]) == 1
    shown = capsys.readouterr().out
    number = next(line.split()[1].rstrip(":") for line in shown.splitlines() if line.startswith("WRONG"))
    assert main(["--seed", "2", "--only", number]) == 1
    assert f"WRONG {number}: " in capsys.readouterr().out
