"""Does ``put_if_absent`` keep its promise? The one question on which every commit rests."""

from __future__ import annotations

import asyncio
from typing import Final

from deltastore.errors import DeltastoreError, StoreError
from deltastore.stores.base import Store
from deltastore.stores.probing.report import BrokenPromiseError
from deltastore.stores.probing.scratch import Scratch

__all__ = ["check_creates", "create_race", "create_twice"]

_FIRST: Final = b"the first creation"
_SECOND: Final = b"the second creation, which must be refused"
_LIMIT: Final = 1024
_TRIES: Final = 3
_TRYING_SECONDS: Final = 20.0
_REMOVING_SECONDS: Final = 10.0


async def check_creates(store: Store, prefix: str = "probes/") -> None:
    """Find out in four requests whether a store refuses a second creation; its object is removed again.

    Raises ``StoreError("store_unfit")`` where it does not, with what happened and what to do, and
    ``StoreError("store_failed")`` where the store failed three times, or once after long tries of its own. It
    asks one after the other: a store that refuses these and yet lets racing creations win is found by
    :func:`probe` only.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + _TRYING_SECONDS
    for tries_left in reversed(range(_TRIES)):
        try:
            await _check_once(store, prefix)
            return
        except StoreError as error:
            # A lost reply says nothing about the store, and leaves open what stands under its key.
            if error.code == "store_unfit" or tries_left == 0 or loop.time() > until:
                raise


async def _check_once(store: Store, prefix: str) -> None:
    scratch = Scratch(store, prefix)
    try:
        await create_twice(scratch)
    except BrokenPromiseError as broken:
        message = (
            f"{store.url} cannot hold a stream: {broken}; two writers would overwrite each other's records: "
            "use another store, or --single-writer if no second writer can ever exist"
        )
        raise StoreError("store_unfit", message) from None
    finally:
        await scratch.remove(_REMOVING_SECONDS)


async def create_twice(scratch: Scratch) -> str:
    """A second creation is refused, and the first one's bytes stay."""
    store, key = scratch.store, scratch.key("created")
    if not await store.put_if_absent(key, _FIRST):
        raise BrokenPromiseError("it refused to create an object under a key that never had one")
    if await store.put_if_absent(key, _SECOND):
        raise BrokenPromiseError("it let a second creation of one object succeed")
    if await store.get(key, limit=_LIMIT) != _FIRST:
        raise BrokenPromiseError("it refused a second creation, and yet changed the object")
    return "a second creation is refused, and the first stands"


async def create_race(scratch: Scratch, racers: int) -> str:
    """Of racing creations one wins, and its bytes are there."""
    store, key = scratch.store, scratch.key("raced")
    entries = [b"creation %d" % number for number in range(racers)]
    answers = await asyncio.gather(*(_entered(store, key, entry) for entry in entries))
    winners = [entry for entry, won in zip(entries, answers, strict=True) if won]
    if len(winners) > 1:
        raise BrokenPromiseError(f"create race lost: {len(winners)} of {racers} racing creations succeeded")
    # One without an answer may have won.
    possible = winners or [entry for entry, won in zip(entries, answers, strict=True) if won is None]
    if not possible:
        raise BrokenPromiseError(f"create race lost: all {racers} racing creations were refused")
    if await store.get(key, limit=_LIMIT) not in possible:
        raise BrokenPromiseError("create race lost: the object is not the winner's")
    unsettled = answers.count(None)
    return f"1 of {racers} racing creations won" + (f", {unsettled} had no answer" if unsettled else "")


async def _entered(store: Store, key: str, data: bytes) -> bool | None:
    """Whether this creation won; None where its outcome is unknown."""
    try:
        return await store.put_if_absent(key, data)
    except StoreError as error:
        if error.code == "store_unfit":
            raise
        return None
    except DeltastoreError:
        return None
