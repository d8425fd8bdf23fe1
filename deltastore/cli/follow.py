"""``deltastore follow``: versions as they land."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from deltastore.cli.arguments import Json, StreamUrl
from deltastore.cli.output import Output

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from deltastore.cli.summary import Summary
    from deltastore.format.records import Record
    from deltastore.log import Log
    from deltastore.stores.base import Store

__all__ = ["follow"]


After = Annotated[
    int | None,
    typer.Option(
        "--from",
        metavar="VERSION",
        min=-1,
        help="Begin with the versions after this one; -1: with the first. Default: only new ones.",
    ),
]
Count = Annotated[int | None, typer.Option("--count", metavar="N", min=1, help="End after N versions.")]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="S",
        min=0,
        help="End after S seconds in all: with status 10 if --count was not reached, else with 0.",
    ),
]
Interval = Annotated[float, typer.Option("--interval", metavar="S", min=0.001, help="Look every S seconds.")]


def follow(
    url: StreamUrl,
    after: After = None,
    count: Count = None,
    timeout: Timeout = None,
    interval: Interval = 0.5,
    as_json: Json = False,
) -> None:
    """Print versions as they land.

    One line each; with --json, one object a line. Ends by Ctrl-C with status 130, unless --count or
    --timeout end it before.
    """
    import asyncio

    from deltastore.errors import NotFoundError
    from deltastore.stores.open import open_store

    output = Output(as_json=as_json)
    store = open_store(url)

    async def run() -> int:
        landed = 0
        async with store:
            async for summary in _versions(store, after, interval, timeout):
                output.result(summary.facts(), _line(summary))
                landed += 1
                if landed == count:
                    break
        return landed

    landed = asyncio.run(run())
    if count is not None and landed < count:
        raise NotFoundError(
            "no_version", f"{landed} of {count} versions landed within {timeout:g} s", where=store.url
        )


async def _versions(
    store: Store, after: int | None, interval: float, seconds: float | None
) -> AsyncIterator[Summary]:
    """Every version above ``after`` (None: above the newest one) in order: those there are, then new ones.

    Ends once so many ``seconds`` are over and all there is has been seen.
    """
    import asyncio
    import time

    from deltastore.cli.summary import Summary
    from deltastore.log import Log

    deadline = None if seconds is None else time.monotonic() + seconds
    log = Log(store)
    last = await log.tip()
    for summary in await _known_versions(log, last, after):
        yield summary
    while True:
        async for record in log.newest_after(last):
            last = record
            summary = Summary.of(record)
            if summary.version is not None and (after is None or summary.version > after):
                yield summary
        left = interval if deadline is None else min(interval, deadline - time.monotonic())
        if left <= 0:
            return
        await asyncio.sleep(left)


async def _known_versions(log: Log, last: Record, after: int | None) -> list[Summary]:
    """The versions above ``after`` up to the record ``last``; none where only new ones are wanted."""
    from deltastore.cli.summary import Summary

    known: list[Summary] = []
    if after is None:
        return known
    async for record in log.backwards(last):
        summary = Summary.of(record)
        if summary.version is not None:
            if summary.version <= after:
                break
            known.append(summary)
    return known[::-1]


def _line(summary: Summary) -> str:
    from deltastore.cli.wording import moment, percent, plain, size

    kind = "anchor" if summary.base is None else f"delta on {summary.base}"
    step = "" if summary.step is None else f", step {plain(summary.step)}"
    share = percent(summary.changed or 0, summary.elements or 0)
    nbytes = size(summary.bytes or 0)
    return f"{moment(summary.time)}  version {summary.version} ({kind}): {share} changed, {nbytes}{step}"
