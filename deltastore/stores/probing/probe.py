"""Asking a store everything."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from deltastore.errors import DeltastoreError
from deltastore.stores.base import Store
from deltastore.stores.probing import creation, listing, objects
from deltastore.stores.probing.report import BrokenPromiseError, Capability, Need, Report, Verdict
from deltastore.stores.probing.scratch import Scratch

__all__ = ["probe"]

_POLLS: Final = 9
_POLLED_LIMIT: Final = 1024
_MIB: Final = 1024 * 1024
_A_MOMENT_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Question:
    """One capability, and how to find out about it. ``seconds`` is what the answer may take on top."""

    name: str
    needed_for: Need
    ask: Callable[[Scratch], Awaitable[str]]
    seconds: float = 0.0


async def probe(
    store: Store,
    prefix: str = "probes/",
    thorough: bool = True,
    *,
    racers: int = 32,
    large_bytes: int = 0,
    patience_seconds: float = 10.0,
) -> Report:
    """Find out what ``store`` can do, with small objects under ``prefix`` that are removed again.

    Quick (not ``thorough``) leaves out the ``racers`` racing creations, listing, deleting and conditional
    reads. ``large_bytes`` above 0 also writes and reads an object of that size, which is held in memory. What
    has no answer within ``patience_seconds`` is "unknown"; a race may take a second more a racer, and a large
    object a second more a MiB. A store that gives up sooner than that says itself what is wrong. Raises
    nothing for what the store does wrong, and ``InputError("bad_key")`` for a prefix that no key can have.
    """
    scratch = Scratch(store, prefix)
    found: list[Capability] = []
    poll = None
    try:
        for question in _questions(thorough, racers, large_bytes):
            found.append(await _judged(scratch, question, patience_seconds))
            if found[0].verdict != "ok":
                break  # whoever cannot write cannot ask the rest
        else:
            poll = await _poll_seconds(scratch, patience_seconds)
    finally:
        # What took no write holds nothing, or one object that it is not going to delete now.
        wrote = bool(found) and found[0].verdict == "ok"
        await scratch.remove(patience_seconds if wrote else min(patience_seconds, _A_MOMENT_SECONDS))
    return Report(store.url, tuple(found), poll)


def _questions(thorough: bool, racers: int, large_bytes: int) -> Iterator[_Question]:
    yield _Question("write and read", "commits", objects.write)
    yield _Question("create if absent", "commits", creation.create_twice)
    yield _Question("absent key", "commits", objects.absent)
    yield _Question("ranged read", "reads", objects.ranges)
    if thorough:
        # Some servers have racers wait for each other in steps of a second.
        race = partial(creation.create_race, racers=racers)
        yield _Question("create race", "commits", race, seconds=racers)
        yield _Question("overwrite", "commits", objects.overwrite)
        yield _Question("list order", "upkeep", listing.list_order)
        yield _Question("list after a key", "upkeep", listing.list_after)
        yield _Question("delete", "upkeep", objects.delete)
        yield _Question("delete twice", "upkeep", objects.delete_twice)
        yield _Question("conditional read", "speed", objects.unchanged)
    if large_bytes > 0:
        large = partial(objects.large, nbytes=large_bytes)
        yield _Question("large object", "commits", large, seconds=large_bytes / _MIB)


async def _judged(scratch: Scratch, question: _Question, patience: float) -> Capability:
    verdict: Verdict
    patience += question.seconds
    try:
        async with asyncio.timeout(patience):
            verdict, detail = "ok", await question.ask(scratch)
    except (BrokenPromiseError, DeltastoreError) as error:
        # Whatever the reason for an error, the store does not do it now, for whoever has these credentials.
        verdict, detail = "fails", str(error)
    except TimeoutError:
        verdict, detail = "unknown", f"no answer within {patience:.3g} seconds; look at server and network"
    return Capability(question.name, verdict, detail, question.needed_for)


async def _poll_seconds(scratch: Scratch, patience: float) -> float | None:
    """The median time of asking whether an object has changed that has not; None where that fails."""
    store, key = scratch.store, scratch.key("polled-often")
    took = []
    try:
        async with asyncio.timeout(patience):
            await store.put(key, b"the same")
            tagged = await store.get_changed(key, tag=None, limit=_POLLED_LIMIT)
            for _ in range(_POLLS):
                started = time.perf_counter()
                await store.get_changed(key, tag=tagged.tag if tagged else None, limit=_POLLED_LIMIT)
                took.append(time.perf_counter() - started)
    except (DeltastoreError, TimeoutError):
        return None
    return statistics.median(took)
