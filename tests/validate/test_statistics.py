"""What a certificate says of itself: no more of anything than there is."""

from __future__ import annotations

import pytest

from deltastore.format.records import record_key
from deltastore.validate import Level, validate
from tests.doubles.forging import fields_of, forge
from tests.doubles.training import Trainer

FOUND = {"inverted": 40, "uncertain": 40, "blocks": 2, "settled": 2, "unexplained": 2}


@pytest.mark.spec("DS064")
@pytest.mark.parametrize(("member", "value"), [("uncertain", 41), ("settled", 3), ("unexplained", 3)])
async def test_a_certificate_with_more_of_something_than_there_is(
    trainer: Trainer, member: str, value: int
) -> None:
    statistics = (await fields_of(trainer.store, 5))["statistics"]
    await forge(trainer.store, 5, statistics={**statistics, "certificate": FOUND})
    report = await validate(trainer.store)
    assert report.ok
    assert {name: report.figures[name] for name in FOUND} == FOUND
    await forge(trainer.store, 5, statistics={**statistics, "certificate": {**FOUND, member: value}})
    report = await validate(trainer.store, level=Level.STRUCTURE)
    assert [(one.check, one.code, one.where, one.version) for one in report.problems] == [
        ("DS064", "bad_json", record_key(5), 2)
    ]
