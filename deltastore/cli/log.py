"""``deltastore log``: the records of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from deltastore.cli.arguments import Json, StreamUrl
from deltastore.cli.output import Output

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from deltastore.cli.summary import Summary
    from deltastore.stores.base import Store

__all__ = ["log"]


def log(
    url: StreamUrl,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="Only the last N records.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the records of a stream.

    The newest comes last; with --json, one object a line. The chain of hashes between the records is checked
    on the way.
    """
    import asyncio

    from deltastore.cli.log_table import print_table
    from deltastore.stores.open import open_store

    output = Output(as_json=as_json)
    store = open_store(url)
    rows: list[Summary] = []

    async def run() -> None:
        async with store:
            async for summary in _summaries(store, limit):
                if as_json:
                    output.result(summary.facts())
                else:
                    rows.append(summary)

    try:
        asyncio.run(run())
    finally:
        # What could be read before a bad record is shown with the error.
        if rows:
            print_table(rows)


async def _summaries(store: Store, limit: int | None) -> AsyncIterator[Summary]:
    from deltastore.cli.summary import Summary
    from deltastore.log import Log

    records = Log(store)
    if limit is None:
        async for record in records.forwards():
            yield Summary.of(record)
        return
    last: list[Summary] = []
    async for record in records.backwards(await records.tip()):
        last.append(Summary.of(record))
        if len(last) == limit:
            break
    for summary in reversed(last):
        yield summary
