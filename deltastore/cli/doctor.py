"""``deltastore doctor``: can this store hold a stream?"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from deltastore.cli.arguments import Json, StreamUrl
from deltastore.cli.output import Output

if TYPE_CHECKING:
    from deltastore.stores.probing import Capability, Report

__all__ = ["doctor"]

_MIB: Final = 1024 * 1024


def doctor(
    url: StreamUrl,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only what every writer needs at once: about 15 small requests.")
    ] = False,
    large: Annotated[
        int,
        typer.Option("--large", metavar="MIB", min=0, help="Also write and read one object of this size."),
    ] = 0,
    patience: Annotated[
        float, typer.Option("--patience", metavar="SECONDS", min=0, help="How long to wait for each answer.")
    ] = 10.0,
    as_json: Json = False,
) -> None:
    """Find out what a store can do.

    Writes small objects below the URL, under probes/, and removes them again; a stream there is not touched.
    Exits with 1 when something that a writer needs does not work.
    """
    import asyncio

    from deltastore.errors import StoreError
    from deltastore.stores.local import LocalStore
    from deltastore.stores.open import open_store
    from deltastore.stores.probing import probe
    from deltastore.stores.retrying import Retrying

    output = Output(as_json=as_json)
    # No longer than we wait ourselves: then it says what failed.
    store = open_store(url, retrying=Retrying(deadline=patience))

    async def run() -> Report:
        async with store:
            return await probe(store, thorough=not quick, large_bytes=large * _MIB, patience_seconds=patience)

    report = asyncio.run(run())
    if isinstance(store, LocalStore):
        _remove_empty(store.root / "probes")
    output.result(_facts(report), *_lines(report))
    if report.missing:
        output.fail(_verdict(report))
        raise typer.Exit(StoreError.exit_status)


def _remove_empty(folder: Path) -> None:
    """Remove the folders that the probes' files were in. One that is not empty stays."""
    if folder.is_symlink():
        return
    for below, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(below)


def _facts(report: Report) -> dict[str, Any]:
    """The report for JSON; ``error`` is there exactly when something is wrong, as with every command."""
    facts: dict[str, Any] = {
        "url": report.url,
        "ok": not report.missing,
        "poll_seconds": report.poll_seconds,
        "capabilities": [
            {"name": one.name, "verdict": one.verdict, "detail": one.detail, "needed_for": one.needed_for}
            for one in report.capabilities
        ],
    }
    if report.missing:
        facts["error"] = {"code": "store_unfit", "message": _verdict(report), "where": None}
    return facts


def _lines(report: Report) -> list[str]:
    lines = [_line(found) for found in report.capabilities]
    if report.poll_seconds is not None:
        lines.append(f"asking whether an object has changed takes {report.poll_seconds * 1000:.2f} ms")
    if not report.missing:
        whole = all(found.verdict == "ok" for found in report.capabilities)
        lines.append(
            "ok: this store can hold a stream" + ("" if whole else ", though not all of the above works")
        )
    return lines


def _line(found: Capability) -> str:
    from deltastore.cli.wording import plain

    need = "" if found.verdict == "ok" else f" (needed for {found.needed_for})"
    verdict = found.verdict if found.verdict == "ok" else found.verdict.upper()
    return f"{verdict:<8} {found.name:<17} {plain(found.detail)}{need}"


def _verdict(report: Report) -> str:
    """Why this store cannot hold a stream, and what to do."""
    from deltastore.cli.wording import plain

    first, *more = report.missing
    rest = f" ({len(more)} more above)" if more else ""
    unsafe = any(one.name.startswith("create") for one in report.missing)
    advice = "put that right, then ask again"
    if unsafe:
        advice = "use another store, or --single-writer if no second writer can ever exist"
    return f"{plain(report.url)} cannot hold a stream: {first.name}: {plain(first.detail)}{rest}; {advice}"
