"""Checks of the log: every record, the hash chain, epochs, versions and bases."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

from deltastore.errors import CorruptError, NotFoundError, StoreError
from deltastore.format.limits import RECORD_BYTES
from deltastore.format.records import (
    AnchorRecord,
    BirthRecord,
    DeltaRecord,
    EpochRecord,
    Record,
    parse_record,
    record_key,
)
from deltastore.log import Log, Manifest
from deltastore.stores.base import Store
from deltastore.validate.report import BAD_OBJECT, Findings

__all__ = ["Chain", "Committed", "walk_chain"]

_AHEAD: Final = 32
_AHEAD_BYTES: Final = 16 << 20
"""Records that are fetched at once, and how much of them."""

_AT_ONCE_BYTES: Final = 64 << 10
"""Up to here a thread costs more than parsing a record."""

_PACK_MEMORY: Final = 3000
_INVENTORY_FACTOR: Final = 4
"""What an entry of a record takes in memory, and an inventory, of its own bytes."""

_SLOT: Final = re.compile(r"log/[0-9]{20}\.json", re.ASCII)

RECORD_CHECKS: Final = ("DS010", "DS011", "DS012", "DS013", "DS051", "DS052", "DS053", "DS100")
VERSION_CHECKS: Final = ("DS054", "DS055")


@dataclass(frozen=True, slots=True)
class Committed:
    """What the walk remembers of a version, some hundred bytes; ``sha256`` is its record's.

    ``base`` is None where it is stored whole; ``digest`` is that of the weights, ``nbytes`` of all packs or
    of all objects of the anchor, and of carried files, as the record says; ``packs`` how many, ``inventory``
    the bytes of an anchor's.
    """

    version: int
    slot: int
    sha256: str
    base: int | None
    table: str
    digest: int
    nbytes: int
    packs: int
    inventory: int

    @property
    def memory(self) -> int:
        """Bytes that its record and its inventory take in memory, about."""
        return self.packs * _PACK_MEMORY + self.inventory * _INVENTORY_FACTOR

    @classmethod
    def by(cls, record: Manifest) -> Committed:
        """What is remembered of a manifest."""
        base, packs, inventory, carried = None, 0, 0, 0
        if isinstance(record, DeltaRecord):
            base, packs = record.base, len(record.packs)
        else:
            inventory = record.anchor.inventory_bytes
            carried = sum(file.bytes for file in record.files)
        return cls(
            version=record.version,
            slot=record.slot,
            sha256=record.sha256,
            base=base,
            table=sys.intern(record.table),
            digest=int(record.digest, 16),
            nbytes=record.statistics.bytes + carried,
            packs=packs,
            inventory=inventory,
        )


@dataclass(slots=True)
class Chain:
    """What a walk over the log has seen so far. Memory: a ``Committed`` for each version."""

    committed: dict[int, Committed] = field(default_factory=dict)
    stream: str | None = None
    """The identity of the stream."""
    records: int = 0
    stopped: int | None = None
    """The slot at which the log cannot be read further; None where its end was reached."""
    epoch: int = 0
    base: int | None = None
    """The version that a delta must be based on now, or None where only an anchor may follow."""
    newest: int = -1
    last: str | None = None
    """The hash of the record before."""

    def observe(self, record: Record) -> None:
        """Take the next record; ``CorruptError("bad_chain")`` when it breaks a rule of the log."""
        where = record_key(record.slot)
        if record.parent != self.last:
            raise _broken(
                "DS051", where, f"names parent {record.parent}, but the record before it is {self.last}"
            )
        if isinstance(record, BirthRecord) != (record.slot == 0):
            raise _broken("DS050", where, "must be a birth record if it is slot 0, and only then")
        if isinstance(record, EpochRecord):
            if record.epoch != self.epoch + 1:
                raise _broken("DS053", where, f"begins epoch {record.epoch} after {self.epoch}")
            if record.resumes is not None and record.resumes not in self.committed:
                raise _broken("DS054", where, f"resumes version {record.resumes}, which is not there")
            self.epoch, self.base = record.epoch, record.resumes
        elif record.epoch != self.epoch:
            raise _broken("DS053", where, f"is of epoch {record.epoch} while {self.epoch} is current")
        elif isinstance(record, AnchorRecord | DeltaRecord):
            self._observe_version(record, where)
        elif isinstance(record, BirthRecord):
            self.stream = record.stream
        self.last = record.sha256
        self.records += 1

    def _observe_version(self, record: Manifest, where: str) -> None:
        if self.epoch == 0:
            raise _broken("DS055", where, "commits a version before any epoch")
        if record.version <= self.newest:
            raise _broken("DS054", where, f"commits version {record.version} after {self.newest}")
        if isinstance(record, DeltaRecord):
            if record.base != self.base:
                wanted = "an anchor" if self.base is None else f"base {self.base}"
                raise _broken("DS055", where, f"builds on version {record.base}; {wanted} was due")
            if record.table != self.committed[record.base].table:
                raise _broken("DS060", where, "has another table than its base")
        self.committed[record.version] = Committed.by(record)
        self.base = self.newest = record.version

    def path(self, version: int) -> list[int]:
        """The versions that reading ``version`` takes, its anchor first."""
        found = [version]
        while (base := self.committed[found[-1]].base) is not None:
            found.append(base)
        return found[::-1]

    def whole(self, versions: list[int], bad: set[int]) -> list[int]:
        """Those of ``versions``, which ascend and hold the base of each, none ``bad`` on their path."""
        spoiled: set[int | None] = set()
        for version in versions:
            if version in bad or self.committed[version].base in spoiled:
                spoiled.add(version)
        return [version for version in versions if version not in spoiled]


async def walk_chain(store: Store, findings: Findings, *, last: int | None = None) -> Chain:
    """Walk the log from slot 0 to its end; ``last``: a version that must be there.

    Stops at the first record that is bad, of a format or a kind that is not known, or that the store does not
    give: behind it nothing can be trusted. Raises ``NotFoundError`` (``no_stream``, ``no_version``), and
    ``StoreError`` where there is no record to begin with.
    """
    chain = Chain()
    try:
        async with aclosing(_records(store)) as records:
            async for record in records:
                chain.observe(record)
                findings.passed(RECORD_CHECKS)
                if isinstance(record, AnchorRecord | DeltaRecord):
                    findings.passed(VERSION_CHECKS)
                    findings.passed(("DS060",) * isinstance(record, DeltaRecord))
        await _check_no_gap(store, chain.records, findings)
    except BAD_OBJECT as error:
        if isinstance(error, StoreError) and not chain.records:
            raise
        findings.add(error)
    if findings.found:
        chain.stopped = chain.records
        return chain
    if not chain.records:
        await Log(store).birth()
    findings.passed(("DS050",))
    if last is not None and last not in chain.committed:
        there = "it has none yet" if chain.newest < 0 else f"the newest is {chain.newest}"
        raise NotFoundError("no_version", f"{store.url} has no version {last}; {there}", where=store.url)
    return chain


async def _records(store: Store) -> AsyncGenerator[Record, None]:
    """Every record from slot 0 to the first absent slot, each checked by itself.

    Bytes are fetched ahead, and parsed in their turn: a large record takes many times its size when parsed.
    What is larger than any record so far is left for its turn too, so that what is on its way is bounded
    whatever comes.
    """
    slot, ahead, limit = 0, 1, RECORD_BYTES
    while True:
        slots = range(slot, slot + ahead)
        found = await asyncio.gather(*(_stored(store, one, limit) for one in slots), return_exceptions=True)
        largest = 1
        for place, data in enumerate(found):
            found[place] = None  # nobody needs its bytes any more once it is parsed
            if isinstance(data, _Larger):
                data = await _stored(store, slot, RECORD_BYTES)
            if isinstance(data, BaseException):
                raise data  # only now: those before it are good
            if data is None:
                return
            largest = max(largest, len(data))
            yield await _parsed(data, slot)
            slot += 1
        ahead = min(2 * ahead, _AHEAD, max(1, _AHEAD_BYTES // largest))
        limit = min(_AHEAD_BYTES // ahead, RECORD_BYTES)


class _Larger(Exception):  # noqa: N818
    """A record that is longer than what may be fetched ahead."""


async def _stored(store: Store, slot: int, limit: int) -> bytes | None:
    """The bytes in a slot, None for an absent one. ``_Larger`` above a ``limit`` below all records'."""
    try:
        return await store.get(record_key(slot), limit=limit)
    except NotFoundError:
        return None
    except CorruptError as error:
        if error.code == "too_large" and limit < RECORD_BYTES:
            raise _Larger from None
        raise


async def _parsed(data: bytes, slot: int) -> Record:
    if len(data) <= _AT_ONCE_BYTES:
        return parse_record(data, slot)
    return await asyncio.to_thread(parse_record, data, slot)


async def _check_no_gap(store: Store, records: int, findings: Findings) -> None:
    """A record after the first absent slot means that a record was lost, unless it has just been written."""
    where = record_key(records)
    async for found in store.list("log/", after=where):
        if _SLOT.fullmatch(found.key):
            if await Log(store).record(records) is None:
                message = f"{where} is gone, though {found.key} exists"
                findings.add(CorruptError("lost_object", message, where=where, rule="DS063"))
            return


def _broken(rule: str, where: str, problem: str) -> CorruptError:
    return CorruptError("bad_chain", f"{where} {problem}", where=where, rule=rule)
