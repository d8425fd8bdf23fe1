"""One trainer incarnation: its epoch record, and commits that a newer epoch fences off.

SPEC sections "Epochs" and "Commit".
"""

from __future__ import annotations

from typing import Any, Final, Self, TypeVar

from deltastore.errors import ConflictError, CorruptError, FencedError, InputError
from deltastore.format.limits import MAX_INTEGER
from deltastore.format.records import (
    AnchorRecord,
    BirthRecord,
    DeltaRecord,
    EpochRecord,
    FileRef,
    Record,
    record_key,
)
from deltastore.log import Log, Manifest, SlotTakenError, describe, new_nonce, next_record

__all__ = ["Epoch", "choose_version", "find_resumed", "refuse_newer_epoch"]

_ROUNDS: Final = 256
_Version = TypeVar("_Version", DeltaRecord, AnchorRecord)


async def find_resumed(log: Log, tip: Record, table: str, digest: str) -> Manifest | None:
    """The newest version with exactly these weights: the same table and the same digest."""
    async for record in log.backwards(tip):
        if isinstance(record, AnchorRecord | DeltaRecord) and (record.table, record.digest) == (
            table,
            digest,
        ):
            return record
    return None


def choose_version(newest: int | None, wanted: int | None) -> int:
    """``wanted``, or ``newest`` + 1; ``ConflictError("version_taken")`` unless it is above ``newest``."""
    following = 0 if newest is None else newest + 1
    if wanted is None:
        return following
    if isinstance(wanted, bool) or not isinstance(wanted, int) or not 0 <= wanted <= MAX_INTEGER:
        raise InputError("bad_argument", f"a version is an integer from 0 to 2**53 - 1, not {wanted!r}")
    if wanted < following:
        raise ConflictError(
            "version_taken",
            f"version {wanted} is not above the tip, version {newest}; "
            f"leave the version out or take {following} or more",
        )
    return wanted


def _check_epoch(tip: Record) -> None:
    """Whether there can have been so many epochs: each takes a slot."""
    if tip.epoch > tip.slot:
        where = record_key(tip.slot)
        problem = f"{where} says that it is of epoch {tip.epoch}, more than there are slots before it"
        raise CorruptError("bad_chain", problem, where=where, rule="DS053")


class Epoch:
    """The right to commit, until a newer epoch record appears.

    ``last`` is the newest record seen, ``newest_version`` the highest version in the log.
    """

    def __init__(self, log: Log, own: EpochRecord, newest_version: int | None) -> None:
        self._log = log
        self._own = own
        self._pending: Manifest | None = None
        self.last: Record = own
        self.newest_version = newest_version

    @classmethod
    async def begin(
        cls,
        log: Log,
        *,
        resumes: int | None,
        label: str,
        nonce: str | None = None,
        last: Record | None = None,
    ) -> Self:
        """Append an epoch record: every older epoch is fenced from here on. ``last``: one near the tip."""
        tip = await (log.tip() if last is None else log.latest(last))
        for _ in range(_ROUNDS):
            _check_epoch(tip)
            newest = await log.manifest_before(tip)
            own = next_record(
                EpochRecord,
                tip,
                epoch=tip.epoch + 1,
                resumes=resumes,
                writer=label,
                nonce=nonce or new_nonce(),
            )
            try:
                await log.place(own)
            except SlotTakenError as lost:
                tip = lost.winner
                continue
            return cls(log, own, None if newest is None else newest.version)
        raise ConflictError("slot_taken", f"no slot was free in {_ROUNDS} tries: too many writers at once")

    @property
    def number(self) -> int:
        """The epoch's number."""
        return self._own.epoch

    @property
    def nonce(self) -> str:
        """The nonce of the epoch's record, by which those who vote in it know it."""
        return self._own.nonce

    @property
    def in_doubt(self) -> bool:
        """Whether a version may have been committed, or may be yet, that was not reported so."""
        return self._pending is not None

    async def settle(self) -> Manifest | None:
        """The version in doubt if it is committed after all; None if it never will be.

        The same bytes are put again until some record stands in that slot. Raises ``StoreError`` while that
        cannot be found out.
        """
        record = self._pending
        if record is None:
            return None
        try:
            await self._log.place(record)
        except SlotTakenError:
            self._pending = None
            return None
        self._landed(record)
        return record

    async def catch_up(self) -> None:
        """Read what others appended; ``FencedError`` as soon as a newer epoch is among it."""
        async for record in self._log.newest_after(self.last):
            self._observe(record)

    async def carried_files(self) -> tuple[FileRef, ...]:
        """The files that the newest anchor of the stream carries."""
        return await self._log.carried_files(self.last)

    def _observe(self, record: Record) -> None:
        refuse_newer_epoch(record, self.number)
        if isinstance(record, AnchorRecord | DeltaRecord | BirthRecord):
            raise ConflictError(
                "version_taken",
                f"slot {record.slot} holds {describe(record)}, which this epoch did not commit",
            )
        self.last = record

    async def commit(self, kind: type[_Version], version: int, **fields: Any) -> _Version:
        """Append the manifest of ``version``: on return it is durable and visible to every reader.

        Raises ``FencedError`` when a newer epoch came first. A slot lost to a record of another kind is no
        conflict: the next slot is taken with the same content. After any other error, and when cancelled,
        the version is in doubt unless ``in_doubt`` says otherwise, and ``settle`` finds out.
        """
        if self._pending is not None:
            raise ValueError("an earlier version is in doubt: settle it first")
        for _ in range(_ROUNDS):
            record = next_record(kind, self.last, epoch=self.number, version=version, **fields)
            self._pending = record
            try:
                await self._log.place(record)
            except SlotTakenError:
                self._pending = None  # its slot is taken: it can never land
                await self.catch_up()
                continue
            self._landed(record)
            return record
        raise ConflictError("slot_taken", f"no slot was free in {_ROUNDS} tries: too many writers at once")

    def _landed(self, record: Manifest) -> None:
        self._pending = None
        self.last, self.newest_version = record, record.version


def refuse_newer_epoch(record: Record, epoch: int) -> None:
    """``FencedError`` for the record of an epoch after ``epoch``; it says whose."""
    if isinstance(record, EpochRecord):
        raise FencedError(
            "fenced",
            f"slot {record.slot} holds {describe(record)}, which fences epoch {epoch}; "
            "another trainer has taken over: stop this one, or open a new writer",
        )
