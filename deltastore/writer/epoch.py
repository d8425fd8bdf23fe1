"""One trainer incarnation: its epoch record, and commits that a newer epoch fences off.

SPEC sections "Epochs" and "Commit".
"""

from __future__ import annotations

from typing import Any, Final, Self, TypeVar

from deltastore.errors import ConflictError, FencedError, InputError
from deltastore.format.limits import MAX_INTEGER
from deltastore.format.records import (
    AnchorRecord,
    BirthRecord,
    DeltaRecord,
    EpochRecord,
    FileRef,
    Record,
)
from deltastore.log import Log, Manifest, SlotTakenError, describe

__all__ = ["Epoch", "choose_version", "find_resumed"]

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


class Epoch:
    """The right to commit, until a newer epoch record appears.

    ``last`` is the newest record seen, ``newest_version`` the highest version in the log. ``landed`` is the
    newest version that this epoch committed without learning of it at the time: the reply was lost.
    """

    def __init__(self, log: Log, own: EpochRecord, newest_version: int | None) -> None:
        self._log = log
        self._own = own
        self._doubtful: set[str] = set()
        self.last: Record = own
        self.newest_version = newest_version
        self.landed: Manifest | None = None

    @classmethod
    async def begin(cls, log: Log, *, resumes: int | None, label: str) -> Self:
        """Append an epoch record: from here on every older epoch is fenced."""
        tip = await log.tip()
        for _ in range(_ROUNDS):
            newest = await log.manifest_before(tip)
            try:
                own = await log.append(EpochRecord, tip, epoch=tip.epoch + 1, resumes=resumes, writer=label)
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
    def in_doubt(self) -> bool:
        """Whether a version may have been committed, or may be yet, that was not reported so."""
        return bool(self._doubtful)

    async def catch_up(self) -> None:
        """Read what others appended; ``FencedError`` as soon as a newer epoch is among it."""
        async for record in self._log.newest_after(self.last):
            self._observe(record)

    async def carried_files(self) -> tuple[FileRef, ...]:
        """The files that the newest anchor of the stream carries."""
        return await self._log.carried_files(self.last)

    def _observe(self, record: Record) -> None:
        if isinstance(record, EpochRecord):
            raise FencedError(
                "fenced",
                f"slot {record.slot} holds {describe(record)}, which fences epoch {self.number}; "
                "another trainer has taken over: stop this one, or open a new writer",
            )
        if isinstance(record, AnchorRecord | DeltaRecord) and record.nonce in self._doubtful:
            self.newest_version, self.landed = record.version, record
        elif isinstance(record, AnchorRecord | DeltaRecord | BirthRecord):
            raise ConflictError(
                "version_taken",
                f"slot {record.slot} holds {describe(record)}, which this epoch did not commit",
            )
        self.last = record

    async def commit(self, kind: type[_Version], version: int, **fields: Any) -> _Version:
        """Append the manifest of ``version``: on return it is durable and visible to every reader.

        Raises ``FencedError`` when a newer epoch came first. A slot lost to a record of another kind is no
        conflict: the next slot is taken with the same content. After any other error, and when cancelled,
        the outcome is unknown: the record may stand, or land yet, and ``catch_up`` then knows it again.
        """
        nonce = fields.pop("nonce")
        for _ in range(_ROUNDS):
            await self.catch_up()
            self._refuse_landed()
            try:
                record = await self._log.append(
                    kind, self.last, epoch=self.number, version=version, nonce=nonce, **fields
                )
            except SlotTakenError:
                continue
            except BaseException:
                self._doubtful.add(nonce)
                raise
            self.last = record
            self.newest_version = version
            self._doubtful.clear()  # their slots are taken: none of them can land any more
            return record
        raise ConflictError("slot_taken", f"no slot was free in {_ROUNDS} tries: too many writers at once")

    def _refuse_landed(self) -> None:
        """What is being committed builds on what was the newest version before ``landed`` was."""
        if self.landed is not None:
            raise ConflictError(
                "version_taken",
                f"{describe(self.landed)} was committed by an earlier call whose outcome was unknown: "
                "publish again to follow it",
            )
