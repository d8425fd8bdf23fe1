"""What each level judges: a stream that breaks one requirement is found at its level, and not before."""

from __future__ import annotations

import pytest

from deltastore.validate import CHECKS, Level, validate
from tests.doubles.models import cut_table, tiny_model
from tests.doubles.stores import flipped, memory_store
from tests.doubles.training import Trainer
from tests.format.packing import with_row

from . import breaking
from .breaking import Break, of_anchor, of_pack, of_patch, of_record

BROKEN: dict[str, tuple[Level, str, Break]] = {
    "canonical": (Level.STRUCTURE, "DS010", breaking.with_spaces),
    "seal": (Level.STRUCTURE, "DS011", breaking.unsealed),
    "schema": (Level.STRUCTURE, "DS013", of_record(7, version="seven")),
    "parent": (Level.STRUCTURE, "DS051", breaking.reparented),
    "epoch": (Level.STRUCTURE, "DS053", of_record(7, epoch=9)),
    "version": (Level.STRUCTURE, "DS054", of_record(7, version=2, base=1)),
    "base": (Level.STRUCTURE, "DS055", of_record(7, base=1)),
    "table": (Level.STRUCTURE, "DS060", of_record(7, table="0" * 64)),
    "lost": (Level.STRUCTURE, "DS063", breaking.without_a_pack),
    "statistics": (Level.STRUCTURE, "DS064", breaking.more_changed),
    "beside": (Level.STRUCTURE, "DS072", breaking.beside_the_anchor),
    "flipped": (Level.CONTENT, "DS061", breaking.flipped_pack),
    "flags": (Level.CONTENT, "DS040", of_pack(lambda data: flipped(data, 10))),
    "encoding": (Level.CONTENT, "DS041", of_pack(lambda data: with_row(data, 0, encoding=2))),
    "order": (Level.CONTENT, "DS042", of_pack(breaking.swapped_rows)),
    "row hash": (Level.CONTENT, "DS044", of_pack(breaking.other_check)),
    "run header": (Level.CONTENT, "DS031", of_patch(lambda patch: flipped(patch, 6))),
    "patch end": (Level.CONTENT, "DS034", of_patch(breaking.padded)),
    "row sums": (Level.CONTENT, "DS062", of_pack(breaking.other_difference)),
    "digest": (Level.CONTENT, "DS062", of_record(6, digest="0" * 16)),
    "shard": (Level.CONTENT, "DS073", of_anchor("/c/0/0", lambda data: flipped(data, 0), sealed=False)),
    "checksum": (Level.CONTENT, "DS073", of_anchor("/c/0/0", lambda data: flipped(data, 0))),
    "left out": (Level.CONTENT, "DS070", of_anchor("/c/0/0", breaking.without_first_chunk)),
    "sums": (Level.CONTENT, "DS074", of_anchor("/sums", lambda data: flipped(data, 0))),
    "difference": (Level.DEEP, "DS046", of_pack(breaking.other_difference, shift=1)),
}


async def trained() -> Trainer:
    """Versions 1 to 4, each one pack of several patches, on the anchor of version 0."""
    model = tiny_model()
    trainer = await Trainer.create(memory_store(), model, table=cut_table(model, 32), pack_bytes=1 << 20)
    for _ in range(4):
        await trainer.step(30)
    return trainer


@pytest.mark.parametrize("name", BROKEN)
async def test_each_level_finds_what_it_judges(name: str) -> None:
    level, check, change = BROKEN[name]
    trainer = await trained()
    await change(trainer)
    for tried in Level:
        report = await validate(trainer.store, level=tried)
        assert report.level is tried
        if tried < level:
            assert report.ok, (tried, report.problems)
            assert report.sound == 4
            continue
        assert report.problems[0].check == check, report.problems
        judged = CHECKS[check].judged
        assert isinstance(judged, Level)
        assert judged <= level
        assert report.broken[check] >= 1
        assert report.sound is None or report.sound < 4


@pytest.mark.spec("DS062")
@pytest.mark.parametrize("level", [Level.CONTENT, Level.DEEP])
async def test_a_wrong_digest_is_blamed_on_one_version_whatever_is_wrong_elsewhere(level: Level) -> None:
    trainer = await trained()
    await of_record(6, digest="0" * 16)(trainer)
    report = await validate(trainer.store, level=level)
    assert [(one.check, one.version) for one in report.problems] == [("DS062", 3)], "version 4 is right"
    trainer = await trained()
    await breaking.flipped_pack(trainer)
    await of_record(7, digest="0" * 16)(trainer)
    report = await validate(trainer.store, level=level)
    assert [(one.check, one.version) for one in report.problems] == [("DS061", 3), ("DS062", 4)]
    assert report.sound == 2
