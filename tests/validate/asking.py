"""What is wrong with a trainer's stream, and its manifests."""

from __future__ import annotations

from deltastore.format.records import DeltaRecord
from deltastore.log import Log
from deltastore.validate import validate
from tests.doubles.training import Trainer


async def first(trainer: Trainer) -> tuple[str, str | None]:
    report = await validate(trainer.store)
    assert not report.ok
    return report.problems[0].code, report.problems[0].where


async def delta(trainer: Trainer, version: int) -> DeltaRecord:
    record = await Log(trainer.store).manifest(version)
    assert isinstance(record, DeltaRecord)
    return record
