"""Checks of the log: every record, the hash chain, epochs, versions and bases."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from deltastore.errors import CorruptError, NotFoundError
from deltastore.format.records import AnchorRecord, DeltaRecord, EpochRecord, Record, record_key
from deltastore.log import Log, Manifest
from deltastore.stores.base import Store
from deltastore.validate.report import BAD_OBJECT, Findings

__all__ = ["ChainState", "check_chain"]

_SLOT: Final = re.compile(r"log/[0-9]{20}\.json", re.ASCII)


@dataclass(slots=True)
class ChainState:
    """What a walk over the log has seen so far."""

    manifests: dict[int, Manifest] = field(default_factory=dict)
    records: int = 0
    epoch: int = 0
    base: int | None = None
    """The version that a delta must be based on now, or None where only an anchor may follow."""

    def observe(self, record: Record) -> None:
        """Take the next record; ``CorruptError("bad_chain")`` when it breaks a rule of the log."""
        where = record_key(record.slot)
        self.records += 1
        if isinstance(record, EpochRecord):
            if record.epoch != self.epoch + 1:
                raise CorruptError(
                    "bad_chain", f"{where}: epoch {record.epoch} after {self.epoch}", where=where
                )
            if record.resumes is not None and record.resumes not in self.manifests:
                raise CorruptError(
                    "bad_chain", f"{where} resumes version {record.resumes}, which is not there", where=where
                )
            self.epoch, self.base = record.epoch, record.resumes
            return
        if record.epoch != self.epoch:
            raise CorruptError(
                "bad_chain", f"{where} is of epoch {record.epoch} while {self.epoch} is current", where=where
            )
        if isinstance(record, AnchorRecord | DeltaRecord):
            self._observe_version(record, where)

    def _observe_version(self, record: Manifest, where: str) -> None:
        if self.epoch == 0:
            raise CorruptError("bad_chain", f"{where} commits a version before any epoch", where=where)
        newest = next(reversed(self.manifests), -1)
        if record.version <= newest:
            raise CorruptError("bad_chain", f"{where}: version {record.version} after {newest}", where=where)
        if isinstance(record, DeltaRecord):
            if record.base != self.base:
                wanted = "an anchor" if self.base is None else f"base {self.base}"
                raise CorruptError(
                    "bad_chain", f"{where} builds on version {record.base}; {wanted} was due", where=where
                )
            if record.table != self.manifests[record.base].table:
                raise CorruptError("bad_chain", f"{where} has another table than its base", where=where)
        self.manifests[record.version] = record
        self.base = record.version


async def check_chain(store: Store, findings: Findings) -> ChainState:
    """Walk the log from slot 0; stops at the first bad record, behind which nothing can be trusted."""
    state = ChainState()
    try:
        async for record in Log(store).forwards():
            state.observe(record)
    except BAD_OBJECT as error:
        findings.add(error)
        return state
    except NotFoundError:
        # No slot 0: no stream, unless there are other slots.
        await _check_no_gap(store, 0, findings)
        if not findings.problems:
            raise
        return state
    await _check_no_gap(store, state.records, findings)
    return state


async def _check_no_gap(store: Store, records: int, findings: Findings) -> None:
    """A record after the first absent slot means that a record was lost, unless it has just been written."""
    where = record_key(records)
    async for found in store.list("log/", after=where):
        if _SLOT.fullmatch(found.key):
            if await Log(store).record(records) is None:
                message = f"{where} is gone, though {found.key} exists"
                findings.add(CorruptError("lost_object", message, where=where))
            return
