"""How several writers find each other through the store, and become one epoch.

SPEC section "Several writers". The coordinator calls, every writer answers with what it holds and the digest
of that, and the epoch begins when the answers are each element of the model exactly once.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from deltastore.errors import ConflictError, DeltastoreError, InputError
from deltastore.format.digest import MODULUS, digest_text
from deltastore.format.limits import REASON_TEXT, RUN_TEXT, TABLE_BYTES
from deltastore.format.records import EpochRecord, Record
from deltastore.format.table import TensorTable
from deltastore.format.votes import Call, Claim, Ending, Join, Owned, call_prefix, claim_key, writer_name
from deltastore.layout.coverage import OwnedBox, check_coverage, merged_members
from deltastore.layout.live_parts import HeldBox
from deltastore.log import Log, new_nonce
from deltastore.stores.base import Store
from deltastore.stores.named import lost_object
from deltastore.writer.exchange import create_sealed, fetch_of_writers, fetch_sealed, tell
from deltastore.writer.waiting import found_within

__all__ = [
    "Gathered",
    "Holding",
    "Team",
    "call_writers",
    "check_whole",
    "claim_of",
    "ending",
    "join_writers",
    "new_run",
    "ranks_text",
    "refuse_call",
]

_FETCHES: Final = 16
_LONGER_SECONDS: Final = 10.0
_RUN: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Team:
    """Which of how many writers this one is, and the name of the run by which they find each other.

    ``run`` is the same for all of them, and best a new one for every start of the trainer: segments of keys
    are what it may be. ``timeout`` is how long, in seconds, one waits for the others.
    """

    rank: int
    writers: int
    run: str
    timeout: float

    def __post_init__(self) -> None:
        if not all(type(number) is int for number in (self.rank, self.writers)) or self.timeout <= 0:
            raise InputError(
                "bad_argument",
                f"rank {self.rank!r} of {self.writers!r} writers, timeout {self.timeout!r}: give integers, "
                "and seconds above 0",
            )
        if not 0 <= self.rank < self.writers:
            raise InputError("bad_argument", f"rank {self.rank} is not one of {self.writers} writers")
        if self.writers > 1 and not self.run:
            raise InputError(
                "bad_argument", "several writers need a run: a name that all of them and nobody else has"
            )
        if self.writers > 1 and (len(self.run) > RUN_TEXT or _RUN.fullmatch(self.run) is None):
            raise InputError(
                "bad_argument",
                f"run {self.run!r:.80} is no part of a key: give up to {RUN_TEXT} of A-Z a-z 0-9 _ . - and "
                "begin with none of . and -",
            )

    @property
    def patience(self) -> float:
        """Seconds that the others wait for rank 0: longer than it waits for them, so as to hear its word."""
        return self.timeout + min(self.timeout, _LONGER_SECONDS)


def new_run() -> str:
    """A name for one start of a trainer: rank 0 makes it, and all ranks use it."""
    return new_nonce()


@dataclass(frozen=True, slots=True)
class Holding:
    """What one writer brings: its claim, and the digest of the elements in it."""

    claim: Claim
    digest: int
    label: str


@dataclass(frozen=True, slots=True)
class Gathered:
    """A call that all writers have answered. ``digest`` is that of the whole model."""

    call: Call
    joins: Mapping[int, Join]
    digest: int


def claim_of(table: TensorTable, boxes: tuple[HeldBox, ...]) -> Claim:
    """The claim on exactly these boxes."""
    owned = merged_members([OwnedBox(box.array, (box.member, *box.lo), (1, *box.size)) for box in boxes])
    return Claim.seal_new(
        table=table.sha256,
        boxes=tuple(Owned(array=box.array, start=box.start, size=box.size) for box in owned),
    )


def check_whole(table: TensorTable, claims: Mapping[int, Claim]) -> None:
    """``InputError("bad_argument")`` unless the claims of all ranks are each element exactly once."""
    owned = [
        (f"rank {rank}", [OwnedBox(box.array, box.start, box.size) for box in claim.boxes])
        for rank, claim in sorted(claims.items())
    ]
    check_coverage(table, owned)


def ending(rank: int, error: BaseException) -> Ending:
    """What tells others that ``error`` stopped this writer."""
    reason = str(error) if isinstance(error, DeltastoreError) else f"{type(error).__name__}: {error}"
    return Ending.seal_new(rank=rank, reason=reason[:REASON_TEXT])


async def call_writers(store: Store, table: TensorTable, team: Team, mine: Holding) -> Gathered:
    """As rank 0: gather all writers of a run. The epoch is yet to begin, with the call's nonce.

    Raises ``ConflictError("aborted")`` naming the ranks that did not answer in time, and ``InputError`` when
    the writers do not hold each element exactly once; those who have answered are told.
    """
    call = await _open_call(store, table, team)
    try:
        joins = await _joins(store, call, team)
        claims = await _claims(store, table, joins)
        check_whole(table, {0: mine.claim, **claims})
    except BaseException as error:
        await refuse_call(store, call, error)
        raise
    digest = sum(int(join.digest, 16) for join in joins.values()) + mine.digest
    return Gathered(call, joins, digest % MODULUS)


async def refuse_call(store: Store, call: Call, error: BaseException) -> None:
    """Tell those who have answered that no epoch will begin."""
    await tell(store, _refused_key(call.run, call.call), ending(0, error))


async def _open_call(store: Store, table: TensorTable, team: Team) -> Call:
    number = 0
    while True:
        key = _call_key(team.run, number)
        if await fetch_sealed(store, key, Call) is None:
            call = Call.seal_new(
                run=team.run, call=number, nonce=new_nonce(), writers=team.writers, table=table.sha256
            )
            if await create_sealed(store, key, call):
                return call
        number += 1


async def _joins(store: Store, call: Call, team: Team) -> dict[int, Join]:
    prefix = call_prefix(call.run, call.call)
    missing = set(range(1, team.writers))
    joins: dict[int, Join] = {}

    async def look(_tick: int) -> dict[int, Join] | None:
        found = await fetch_of_writers(store, prefix, missing, Join)
        for rank, join in found.items():
            if (join.call, join.rank) != (call.sha256, rank):
                raise ConflictError("aborted", f"what rank {rank} put under {prefix} answers no call of it")
        joins.update(found)
        missing.difference_update(found)
        return None if missing else joins

    complete = await found_within(team.timeout, look)
    if complete is not None:
        return complete
    raise ConflictError(
        "aborted",
        f"{ranks_text(missing)} of {team.writers} did not join run {team.run!r} within {team.timeout:g} s: "
        "see whether they run, then start again",
    )


async def _claims(store: Store, table: TensorTable, joins: Mapping[int, Join]) -> dict[int, Claim]:
    room = asyncio.Semaphore(_FETCHES)

    async def fetch(rank: int, sha256: str) -> Claim:
        async with room:
            claim = await fetch_sealed(store, claim_key(sha256), Claim, limit=TABLE_BYTES)
        if claim is None or claim.sha256 != sha256:
            raise lost_object(claim_key(sha256), f"rank {rank}", "DS085")
        if claim.table != table.sha256:
            raise ConflictError("aborted", f"rank {rank} has another tensor table than the coordinator")
        return claim

    claims = await asyncio.gather(*(fetch(rank, join.claim) for rank, join in joins.items()))
    return dict(zip(joins, claims, strict=True))


async def join_writers(store: Store, log: Log, team: Team, mine: Holding) -> tuple[EpochRecord, Join]:
    """As another rank: answer the newest call of the run, and wait until its epoch has begun.

    Raises ``ConflictError("aborted")`` when no call comes in time, or rank 0 refuses, with its words.
    """
    tip = await log.tip()
    data = mine.claim.to_bytes()
    await store.put(claim_key(mine.claim.sha256), data)
    joining = _Joining(store, log, team, mine, tip)
    epoch = await found_within(team.patience, joining.look)
    if epoch is not None and joining.join is not None:
        return epoch, joining.join
    raise ConflictError("aborted", joining.problem)


class _Joining:
    """One writer on its way into an epoch."""

    def __init__(self, store: Store, log: Log, team: Team, mine: Holding, tip: Record) -> None:
        self._store = store
        self._log = log
        self._team = team
        self._mine = mine
        self._last = tip
        self._number = 0
        self._call: Call | None = None
        self.join: Join | None = None
        self.problem = (
            f"rank 0 did not call the writers of run {team.run!r} within {team.patience:g} s: "
            "see whether it runs, then start again"
        )

    async def look(self, _tick: int) -> EpochRecord | None:
        """Answer the newest call if it is new; the epoch's record once it is there.

        No older one: whoever made it may wait yet, and would begin an epoch that fences the newer one.
        """
        newest = None
        while (call := await self._find(self._number)) is not None:
            newest = call
            self._number += 1
        if newest is not None:
            await self._answer(newest)
        if self._call is None:
            return None
        refusal = await fetch_sealed(self._store, _refused_key(self._call.run, self._call.call), Ending)
        if refusal is not None:
            raise ConflictError(
                "aborted", f"the writers of run {self._call.run!r} did not come together: {refusal.reason}"
            )
        async for record in self._log.newest_after(self._last):
            self._last = record
            if isinstance(record, EpochRecord) and record.nonce == self._call.nonce:
                return record
        return None

    async def _find(self, number: int) -> Call | None:
        return await fetch_sealed(self._store, _call_key(self._team.run, number), Call)

    async def _answer(self, call: Call) -> None:
        self._call, self.join = None, None
        if await fetch_sealed(self._store, _refused_key(call.run, call.call), Ending) is not None:
            return
        if call.writers != self._team.writers:
            # Perhaps of an earlier start, so that it is no error while a newer call may come.
            self.problem = (
                f"run {call.run!r} is of {call.writers} writers, and this one was told {self._team.writers}: "
                "give the same number to all, and every start a run of its own"
            )
            return
        join = Join.seal_new(
            call=call.sha256,
            rank=self._team.rank,
            nonce=new_nonce(),
            label=self._mine.label,
            claim=self._mine.claim.sha256,
            digest=digest_text(self._mine.digest),
        )
        key = call_prefix(call.run, call.call) + writer_name(self._team.rank)
        if await create_sealed(self._store, key, join):
            self._call, self.join = call, join
            self.problem = (
                f"the epoch of run {call.run!r} did not begin within {self._team.patience:g} s: "
                "see whether all writers run, then start again"
            )
        else:
            self.problem = (
                f"another process joined run {call.run!r} as rank {self._team.rank}, and no new call came: "
                "give every process a rank of its own, and every start a run of its own"
            )


def _call_key(run: str, call: int) -> str:
    return call_prefix(run, call) + "call.json"


def _refused_key(run: str, call: int) -> str:
    return call_prefix(run, call) + "refused.json"


def ranks_text(ranks: set[int]) -> str:
    """Ranks, for messages."""
    shown = ", ".join(map(str, sorted(ranks)[:16])) + (", ..." if len(ranks) > 16 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"
