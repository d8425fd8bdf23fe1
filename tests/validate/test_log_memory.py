"""Of a log that somebody else writes no more is on its way than what is reckoned with."""

from __future__ import annotations

import asyncio

import pytest

from deltastore.errors import CorruptError
from deltastore.format.limits import RECORD_BYTES
from deltastore.format.records import record_key
from deltastore.validate import Level, chain, validate
from tests.doubles.forging import fields_of, put_record
from tests.doubles.stores import WatchedStore
from tests.doubles.training import Trainer

BUDGET = 64 << 10


class MeasuredStore(WatchedStore):
    """Knows the limits of all records that are on their way at once."""

    held = 0
    most = 0
    together = 0
    running = 0

    async def get(self, key: str, *, limit: int) -> bytes:
        """Take turns, so that those who were asked at once are on their way together."""
        self.held, self.running = self.held + limit, self.running + 1
        if limit < RECORD_BYTES:
            self.most, self.together = max(self.most, self.held), max(self.together, self.running)
        try:
            await asyncio.sleep(0)
            return await super().get(key, limit=limit)
        finally:
            self.held, self.running = self.held - limit, self.running - 1


async def lengthen(trainer: Trainer, sizes: list[int]) -> int:
    """Append ignorable records of about so many bytes; the slot of the last one."""
    slot = 7
    for size in sizes:
        last = await fields_of(trainer.store, slot)
        slot += 1
        fields = {
            **{name: last[name] for name in ("format", "epoch", "time")},
            **{"kind": "note", "ignorable": True, "slot": slot, "parent": last["sha256"]},
            **{"nonce": f"{slot:032x}", "text": "x" * size},
        }
        await put_record(trainer.store, slot, fields)
    return slot


@pytest.mark.spec("DS100")
async def test_records_that_grow_are_fetched_in_their_turn(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "_AHEAD_BYTES", BUDGET)
    slot = await lengthen(trainer, [10] * 40 + [70_000, 10, 50_000, 70_000] + [3_000] * 40 + [20_000] * 10)
    store = MeasuredStore(trainer.store)
    report = await validate(store, level=Level.STRUCTURE)
    assert report.ok
    assert report.records == slot + 1
    assert store.most <= BUDGET
    assert store.together > 8, "small records are fetched side by side"


@pytest.mark.spec("DS100")
async def test_a_record_above_the_limit_is_found_in_its_turn(
    trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "_AHEAD_BYTES", BUDGET)
    slot = await lengthen(trainer, [10] * 60)
    await trainer.store.delete(record_key(slot))
    await trainer.store.put(record_key(slot), b"[" * (RECORD_BYTES + 1))
    report = await validate(trainer.store, level=Level.STRUCTURE)
    (problem,) = report.problems
    assert (problem.code, problem.where) == ("too_large", record_key(slot))
    assert isinstance(problem.check, str)
    with pytest.raises(CorruptError):
        await trainer.store.get(record_key(slot), limit=RECORD_BYTES)
