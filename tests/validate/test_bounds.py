"""What a report keeps of a store that is full of problems."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from deltastore.errors import CorruptError
from deltastore.stores.base import ObjectInfo
from deltastore.validate import Level, report, validate
from deltastore.validate.report import Findings
from tests.doubles.models import tiny_model
from tests.doubles.stores import WatchedStore, memory_store
from tests.doubles.training import Trainer

STRANGE = 300


def wrong(key: str, message: str = "wrong") -> CorruptError:
    return CorruptError("bad_anchor", message, where=key, rule="DS072")


def test_objects_are_remembered_up_to_a_number_wherever_they_come_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(report, "_BAD_OBJECTS", 10)
    whole = Findings()
    for part in range(4):
        found = whole.apart()
        for number in range(25):
            found.add(wrong(f"{part}/{number}"), part)
        assert len(found.bad_objects) == 10
        whole.merge(found)
        assert len(whole.bad_objects) == 10
    assert whole.knows(0, "0/3")
    assert not whole.knows(1, "0/3"), "another version may say otherwise"
    assert whole.found == 100


def test_texts_are_cut() -> None:
    findings = Findings()
    findings.add(wrong("k" * 5000, "m" * 5_000_000))
    (problem,) = findings.problems
    assert problem.where is not None
    assert len(problem.where) + len(problem.message) < 5000
    assert problem.message.startswith("mmm")


async def test_strange_keys_are_counted_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    class Littered(WatchedStore):
        async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
            async for one in super().list(prefix, after=after):
                yield one
            if prefix.startswith("anchors/"):
                for number in range(STRANGE):
                    yield ObjectInfo(f"{prefix}zz{number}", 1)

    remembered: list[int] = []
    merge = Findings.merge

    def spied(self: Findings, others: Findings) -> None:
        merge(self, others)
        remembered.append(len(self.bad_objects) + len(others.bad_objects))

    monkeypatch.setattr(Findings, "merge", spied)
    trainer = await Trainer.create(memory_store(), tiny_model())
    for _ in range(3):
        await trainer.step(anchor=True)
    found = await validate(Littered(trainer.store), level=Level.STRUCTURE)
    assert (found.found, len(found.problems)) == (4 * STRANGE, report.LIMIT)
    assert found.broken == {"DS072": 4 * STRANGE}
    assert max(remembered) == 0
