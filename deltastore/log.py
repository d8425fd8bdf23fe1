"""The commit log: an append-only sequence of records over a store (SPEC section "Log").

Creating the next slot if it is absent is the only commit there is.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from typing import Any, Final, TypeVar

from deltastore.errors import ConflictError, CorruptError, NotFoundError
from deltastore.format.limits import MAX_INTEGER, RECORD_BYTES
from deltastore.format.records import (
    AnchorRecord,
    BirthRecord,
    DeltaRecord,
    EpochRecord,
    FileRef,
    Record,
    parse_record,
    record_key,
)
from deltastore.stores.base import Store
from deltastore.stores.settled import create_settled

__all__ = ["Log", "Manifest", "SlotTakenError", "describe", "new_nonce", "next_record"]

_AHEAD: Final = 32
"""Most records that are fetched at once."""

Manifest = AnchorRecord | DeltaRecord
"""A record that commits a version."""

Appended = TypeVar("Appended", BirthRecord, EpochRecord, DeltaRecord, AnchorRecord)


class SlotTakenError(ConflictError):
    """Another record stands in the slot; ``winner`` is that record."""

    def __init__(self, winner: Record) -> None:
        super().__init__(
            "slot_taken",
            f"slot {winner.slot} was taken by {describe(winner)}; read the log and try the next slot",
            where=record_key(winner.slot),
        )
        self.winner = winner

    def __reduce__(self) -> tuple[object, ...]:
        return (SlotTakenError, (self.winner,))


class Log:
    """The records of one stream. Holds no state but the store: every answer is read."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def record(self, slot: int) -> Record | None:
        """The record of ``slot``, checked by itself, or None while the slot is absent."""
        try:
            data = await self._store.get(record_key(slot), limit=RECORD_BYTES)
        except NotFoundError:
            return None
        return parse_record(data, slot)

    async def birth(self) -> BirthRecord:
        """Slot 0; ``NotFoundError("no_stream")`` where there is no stream."""
        first = await self.record(0)
        if first is None:
            raise NotFoundError(
                "no_stream",
                f"{self._store.url} holds no stream: create one with 'deltastore init URL --from CHECKPOINT'",
                where=self._store.url,
            )
        if not isinstance(first, BirthRecord):
            raise CorruptError("bad_chain", "slot 0 is no birth record", where=record_key(0), rule="DS050")
        return first

    async def tip(self) -> Record:
        """The last record, found by galloping: O(log n) requests. The chain before it is not yet checked."""
        await self.birth()
        present, absent = 0, 1
        while await self._store.stat(record_key(absent)) is not None:
            present, absent = absent, absent * 2
            if absent > MAX_INTEGER:
                raise _no_end(record_key(present))
        while absent - present > 1:
            middle = (present + absent) // 2
            if await self._store.stat(record_key(middle)) is None:
                absent = middle
            else:
                present = middle
        return await self._known(present)

    async def backwards(self, last: Record) -> AsyncIterator[Record]:
        """``last`` and every record before it, newest first, each checked against the hash that names it.

        Records are fetched ahead, twice as many each time, so that a long way costs few round trips.
        """
        yield last
        record, ahead = last, 1
        while record.slot > 0:
            slots = range(record.slot - 1, max(record.slot - 1 - ahead, -1), -1)
            found = await asyncio.gather(*map(self._known, slots), return_exceptions=True)
            for before in found:
                if isinstance(before, BaseException):
                    raise before  # only now: whoever stops before this one never needed it
                _check_link(before, record)
                record = before
                yield record
            ahead = min(2 * ahead, _AHEAD)

    async def forwards(self) -> AsyncIterator[Record]:
        """Every record from slot 0 on, in order, with the chain checked; ends at the first absent slot.

        Records are fetched ahead, twice as many each time; of the last ones some are then absent.
        """
        last: Record = await self.birth()
        yield last
        ahead = 1
        while True:
            slots = range(last.slot + 1, last.slot + 1 + ahead)
            found = await asyncio.gather(*map(self.record, slots), return_exceptions=True)
            for record in found:
                if isinstance(record, BaseException):
                    raise record  # only now: those before it are good
                if record is None:
                    return
                _check_link(last, record)
                last = record
                yield record
            ahead = min(2 * ahead, _AHEAD)

    async def after(self, last: Record) -> Record | None:
        """The record that follows ``last``, with the chain checked, or None while there is none.

        One request. ``last`` should be the newest record that the caller has.
        """
        record = await self.record(last.slot + 1)
        if record is not None:
            _check_link(last, record)
        return record

    async def newest_after(self, last: Record) -> AsyncIterator[Record]:
        """All records after ``last`` that exist now, in order, with the chain checked."""
        record = await self.after(last)
        while record is not None:
            yield record
            record = await self.after(record)

    async def latest(self, known: Record) -> Record:
        """The last record, found by reading on from ``known``: one request, and one for each new record."""
        last = known
        async for record in self.newest_after(known):
            last = record
        return last

    async def newest_manifest(self) -> Manifest:
        """The manifest of the newest version; ``NotFoundError("no_version")`` while there is none."""
        found = await self.manifest_before(await self.tip())
        if found is None:
            raise NotFoundError(
                "no_version", f"{self._store.url} has no version yet: wait for the trainer's first one"
            )
        return found

    async def manifest_before(self, tip: Record) -> Manifest | None:
        """The newest manifest at or before ``tip``, or None where there is none."""
        async for record in self.backwards(tip):
            if isinstance(record, AnchorRecord | DeltaRecord):
                return record
        return None

    async def carried_files(self, last: Record) -> tuple[FileRef, ...]:
        """The files that the newest anchor at or before ``last`` carries."""
        async for record in self.backwards(last):
            if isinstance(record, AnchorRecord):
                return record.files
        return ()

    async def manifest(self, version: int, *, last: Record | None = None) -> Manifest:
        """The manifest of ``version``; ``NotFoundError("no_version")`` names the versions there are."""
        newest: int | None = None
        async for record in self.backwards(last or await self.tip()):
            if isinstance(record, AnchorRecord | DeltaRecord):
                newest = record.version if newest is None else newest
                if record.version == version:
                    return record
                if record.version < version:
                    break
        reach = "it has none yet" if newest is None else f"its last one is {newest}"
        raise NotFoundError(
            "no_version", f"{self._store.url} has no version {version}; {reach}", where=self._store.url
        )

    async def append(self, kind: type[Appended], parent: Record | None, **fields: Any) -> Appended:
        """Create the slot after ``parent`` (slot 0 for None). On return the record is durable.

        Raises what ``place`` raises.
        """
        record = next_record(kind, parent, **fields)
        await self.place(record)
        return record

    async def place(self, record: Record) -> None:
        """Create the record's slot. On return it stands there, durable.

        Raises ``SlotTakenError`` when another record does: this one never will. A failed or lost reply is
        settled by reading the slot back, and an absent slot gets the same bytes again. After ``StoreError``
        the outcome is unknown, and ``place`` may be called again with the same record.
        """
        key = record_key(record.slot)
        standing = await create_settled(self._store, key, record.to_bytes(), limit=RECORD_BYTES)
        if standing is not None:
            raise SlotTakenError(parse_record(standing, record.slot))

    async def _known(self, slot: int) -> Record:
        record = await self.record(slot)
        if record is None:
            where = record_key(slot)
            message = f"{where} is gone, though a later record exists"
            raise CorruptError("lost_object", message, where=where, rule="DS063")
        return record


def next_record(kind: type[Appended], parent: Record | None, **fields: Any) -> Appended:
    """A record for the slot after ``parent`` (slot 0 for None), with a new nonce unless one is given."""
    return kind.seal_new(
        slot=0 if parent is None else parent.slot + 1,
        parent=None if parent is None else parent.sha256,
        ignorable=False,
        time=max(time.time_ns() // 1_000_000, 0),
        **{"nonce": new_nonce(), **fields},
    )


def _no_end(where: str) -> CorruptError:
    message = f"{where} is there, as is every slot that was looked for: this is no log"
    return CorruptError("bad_chain", message, where=where, rule="DS100")


def _check_link(before: Record, record: Record) -> None:
    if record.parent != before.sha256:
        where = record_key(record.slot)
        raise CorruptError(
            "bad_chain",
            f"{where} names parent {str(record.parent)[:12]}, but slot {before.slot} is {before.sha256[:12]}",
            where=where,
            rule="DS051",
        )
    epoch = before.epoch + isinstance(record, EpochRecord)
    if record.epoch != epoch:
        where = record_key(record.slot)
        problem = f"{where} says that it is of epoch {record.epoch}, where epoch {epoch} was due"
        raise CorruptError("bad_chain", problem, where=where, rule="DS053")


def new_nonce() -> str:
    """128 random bits as 32 hexadecimal digits: how a writer knows its own record again."""
    return secrets.token_hex(16)


def describe(record: Record) -> str:
    """A few words for people: what the record is and whose."""
    if isinstance(record, AnchorRecord | DeltaRecord):
        return f"{record.kind} version {record.version} of epoch {record.epoch}"
    if isinstance(record, EpochRecord):
        by = f" ({record.writer})" if record.writer else ""
        return f"the record of epoch {record.epoch}{by}"
    return f"a {record.kind} record"
