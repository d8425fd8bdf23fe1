"""``deltastore validate``: is every byte of a stream what it should be?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from deltastore.cli.arguments import Json, StreamUrl
from deltastore.cli.output import Output

if TYPE_CHECKING:
    from deltastore.validate import Report

__all__ = ["validate"]


def validate(url: StreamUrl, as_json: Json = False) -> None:
    """Check every byte of a stream.

    Records, hashes, indexes, patches, and the digest of every version by replay. Exits with 12 when anything
    is wrong, and names the first bad object.
    """
    import asyncio

    from deltastore.cli.progress import progress_bar
    from deltastore.cli.wording import plain
    from deltastore.errors import CorruptError
    from deltastore.stores.open import open_store
    from deltastore.validate import validate as validate_stream

    output = Output(as_json=as_json)
    store = open_store(url)

    async def run() -> Report:
        async with store:
            with progress_bar(f"checking {store.url}") as progress:
                return await validate_stream(store, progress=progress)

    report = asyncio.run(run())
    output.result({"url": store.url, **_facts(report)}, *_lines(report))
    if not report.ok:
        first = report.problems[0]
        output.fail(plain(first.message))
        raise typer.Exit(CorruptError.exit_status)


def _facts(report: Report) -> dict[str, Any]:
    """The report for JSON; ``error`` is there exactly when something is wrong, as with every command."""
    facts: dict[str, Any] = {
        "ok": report.ok,
        "records": report.records,
        "versions": report.versions,
        "anchors": report.anchors,
        "packs": report.packs,
        "bytes": report.nbytes,
        "problems": [
            {"code": found.code, "message": found.message, "where": found.where, "version": found.version}
            for found in report.problems
        ],
    }
    if not report.ok:
        first = report.problems[0]
        facts["error"] = {"code": first.code, "message": first.message, "where": first.where}
    return facts


def _lines(report: Report) -> list[str]:
    from deltastore.cli.wording import plain, plural, size

    counts = (
        f"{plural(report.versions, 'version')}, {plural(report.records, 'record')}, "
        f"{plural(report.anchors, 'anchor')}, {plural(report.packs, 'pack')}, {size(report.nbytes)}"
    )
    if report.ok:
        return [f"ok: {counts}"]
    found = [f"  {plain(problem.code)}: {plain(problem.message)}" for problem in report.problems]
    return [f"corrupt: {plural(len(found), 'problem')} in {counts}", *found]
