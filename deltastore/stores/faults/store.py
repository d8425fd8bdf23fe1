"""The store that fails on purpose."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

from deltastore.errors import StoreError
from deltastore.stores.base import Data, ObjectInfo, Store, Tagged, as_octets, no_object
from deltastore.stores.faults.dice import Dice, Strike
from deltastore.stores.faults.journal import Injected
from deltastore.stores.faults.late import LateWrite, LateWrites
from deltastore.stores.faults.plan import Faults, Operation
from deltastore.stores.faults.recent import RecentKeys
from deltastore.stores.wrapped import WrappedStore

__all__ = ["FaultyStore"]

# A listing whose reply gets lost ends after fewer keys than this.
_LISTED_BEFORE_LOSS: Final = 8
_LANDING: Final = frozenset({"late", "repeated"})

_Answer = TypeVar("_Answer")


class FaultyStore(WrappedStore):
    """``inner`` with the faults of ``plan``: what networks and object stores do on a bad day.

        plan = Faults.rates(refused=0.02, lost=0.02, late=0.01, truncated=0.01)
        store = FaultyStore(open_store(url), plan, seed=7)
        ...                          # train, publish, follow; retry what fails
        await store.settle()         # let the writes land that are still on their way
        print(*store.journal, sep="\\n")

    or one exact fault, here the reply to the third record:

        Faults((Fault("lost", operations=("put_if_absent",), prefix="log/", at=(3,)),))

    Kinds of fault are described at :class:`Fault`. The same plan, seed and order of calls gives the same
    faults, which ``journal`` lists as they strike. The store breaks its promises only where the plan says
    so: with an empty plan it is ``inner``.
    """

    def __init__(self, inner: Store, plan: Faults, seed: int) -> None:
        super().__init__(inner)
        self.journal: Final[list[Injected]] = []
        self._plan = plan
        self._seed = seed
        self._dice = Dice(plan, seed)
        self._late = LateWrites(self.journal)
        self._recent = RecentKeys(plan.recent_calls)

    async def settle(self) -> None:
        """Let every write land that is still on its way. Those of a store that nobody settles never do."""
        await self._late.land(self._dice.calls, everything=True)

    async def get(self, key: str, *, limit: int) -> bytes:
        strike = await self._begin("get", key)
        self._find(strike)
        return self._cut(strike, await self._answer(strike, self.inner.get(key, limit=limit)))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        strike = await self._begin("get_range", key)
        self._find(strike)
        return self._cut(strike, await self._answer(strike, self.inner.get_range(key, start, length)))

    async def get_changed(self, key: str, *, tag: str | None, limit: int) -> Tagged | None:
        strike = await self._begin("get_changed", key)
        self._find(strike)
        found = await self._answer(strike, self.inner.get_changed(key, tag=tag, limit=limit))
        return None if found is None else Tagged(self._cut(strike, found.data), found.tag)

    async def stat(self, key: str) -> ObjectInfo | None:
        strike = await self._begin("stat", key)
        if self._misses(strike):
            return None
        return await self._answer(strike, self.inner.stat(key))

    async def list(self, prefix: str, *, after: str | None = None) -> AsyncIterator[ObjectInfo]:
        strike = await self._begin("list", prefix)
        left = int(strike.amount * _LISTED_BEFORE_LOSS) if strike.kind == "lost" else None
        noted = False
        async for info in self.inner.list(prefix, after=after):
            if left == 0:
                break
            if strike.kind == "stale_list" and self._recent.covers(info.key, strike.number):
                if not noted:
                    self._note(strike)
                noted = True
                continue
            yield info
            left = None if left is None else left - 1
        if left is not None:
            raise self._failure(strike, "the rest of the listing was lost")

    async def put(self, key: str, data: Data) -> None:
        strike = await self._begin("put", key)
        held = _held(strike, data)

        async def apply() -> None:
            await self.inner.put(key, held)
            self._recent.created(key, self._dice.calls)

        await self._write(strike, apply)

    async def put_if_absent(self, key: str, data: Data) -> bool:
        strike = await self._begin("put_if_absent", key)
        held = _held(strike, data)

        async def apply() -> bool:
            created = await self.inner.put_if_absent(key, held)
            if created:
                self._recent.created(key, self._dice.calls)
            return created

        return await self._write(strike, apply)

    async def delete(self, key: str) -> None:
        strike = await self._begin("delete", key)

        async def apply() -> None:
            await self.inner.delete(key)
            self._recent.deleted(key)

        await self._write(strike, apply)

    async def _begin(self, operation: Operation, key: str) -> Strike:
        """What is about to happen to a call; faults that come before it have happened on return."""
        strike = self._dice.throw(operation, key)
        await self._late.land(strike.number)
        if strike.delay is not None:
            self.journal.append(Injected(strike.number, operation, key, "delayed"))
            await asyncio.sleep(strike.delay)
        if strike.kind == "refused":
            raise self._failure(strike, "nothing was applied")
        if strike.kind == "stalled":
            await self._stall(strike)
        return strike

    async def _stall(self, strike: Strike) -> None:
        seconds = self._plan.stall_seconds
        failure = self._failure(strike, "there was no answer, and nothing was applied")
        if seconds is None:
            await asyncio.Event().wait()
        else:
            await asyncio.sleep(seconds)
        raise failure

    async def _answer(self, strike: Strike, answer: Awaitable[_Answer]) -> _Answer:
        found = await answer
        if strike.kind == "lost":
            raise self._failure(strike, "the reply was lost")
        return found

    async def _write(self, strike: Strike, apply: Callable[[], Awaitable[_Answer]]) -> _Answer:
        if strike.kind in _LANDING:
            due = strike.number + self._plan.land_after + 1
            self._late.add(LateWrite(due, strike.operation, strike.key, apply))
        if strike.kind == "late":
            raise self._failure(strike, "it may still be applied")
        if strike.kind == "repeated":
            self._note(strike)
        return await self._answer(strike, apply())

    def _find(self, strike: Strike) -> None:
        if self._misses(strike):
            raise no_object(strike.key)

    def _misses(self, strike: Strike) -> bool:
        missed = strike.kind == "stale_absent" and self._recent.covers(strike.key, strike.number)
        if missed:
            self._note(strike)
        return missed

    def _cut(self, strike: Strike, data: bytes) -> bytes:
        if strike.kind != "truncated" or not data:
            return data
        self._note(strike)
        return data[: int(strike.amount * len(data))]

    def _failure(self, strike: Strike, outcome: str) -> StoreError:
        self._note(strike)
        message = (
            f"cannot {strike.operation} {strike.key or 'the store'}: {strike.kind} on purpose at call "
            f"{strike.number} of seed {self._seed}; {outcome}; try again"
        )
        return StoreError("store_failed", message, where=strike.key or None)

    def _note(self, strike: Strike) -> None:
        if strike.kind is not None:
            self.journal.append(Injected(strike.number, strike.operation, strike.key, strike.kind))


def _held(strike: Strike, data: Data) -> Data:
    """The data of a write: a copy where it lands after the call, when the caller may have changed it."""
    return bytes(as_octets(strike.key, data)) if strike.kind in _LANDING else data
