"""``deltastore validate --live``: are an engine's weights a version, to the bit?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from deltastore.cli.arguments import parse_version
from deltastore.cli.engines import EngineChoice
from deltastore.cli.output import Output
from deltastore.cli.stream_layout import stream_layout
from deltastore.errors import CorruptError, UsageError

if TYPE_CHECKING:
    from deltastore.layout.pieces import Layout
    from deltastore.stores.base import Store
    from deltastore.validate.live import LiveReport

__all__ = ["LiveChoice", "compare"]


@dataclass(frozen=True, slots=True)
class LiveChoice:
    """What a dump is compared with, and what it is seen through."""

    version: str | None
    layout: Path | None
    engine: EngineChoice | None
    rank: int
    config: str | None
    jobs: int | None
    nonce: str | None


def compare(url: str, path: Path, choice: LiveChoice, *, as_json: bool) -> None:
    """Compare, print what was found, and exit with 12 where anything differs."""
    import asyncio

    from deltastore.cli.live_text import live_facts, live_lines, live_problem, share
    from deltastore.cli.wording import plain
    from deltastore.stores.open import open_store

    version = None if choice.version is None else parse_version(choice.version)
    output = Output(as_json=as_json)
    store = open_store(url)

    report = asyncio.run(_report(store, path, choice, version))
    output.result({"url": store.url, **live_facts(report)}, *live_lines(report))
    if report.attested and report.covered < report.total:
        output.warn(f"{plain(path)}: readers hold {share(report)} together; nothing is said of the rest")
    if not report.ok:
        output.fail(plain(live_problem(report)))
        raise typer.Exit(CorruptError.exit_status)


async def _report(store: Store, path: Path, choice: LiveChoice, version: int | None) -> LiveReport:
    from deltastore.cli.progress import progress_bar
    from deltastore.kernels.threads import chosen_threads
    from deltastore.validate.live import Attestations, compare_live, open_live

    with open_live(path) as live:
        attested = isinstance(live, Attestations)
        if attested and (choice.layout or choice.engine or choice.config or choice.rank):
            raise UsageError("usage", f"{path} says itself which elements it is about: leave the layout out")
        async with store:
            latest = attested and choice.version is not None and version is None
            wanted = await _newest(store) if latest else version
            layout = await _layout(store, wanted, choice)
            with progress_bar(f"comparing {path}") as progress:
                return await compare_live(
                    store,
                    live,
                    version=wanted,
                    layout=layout,
                    nonce=choice.nonce,
                    jobs=chosen_threads(None) if choice.jobs is None else choice.jobs,
                    progress=progress,
                )


async def _newest(store: Store) -> int:
    from deltastore.log import Log

    return (await Log(store).newest_manifest()).version


async def _layout(store: Store, version: int | None, choice: LiveChoice) -> Layout | None:
    """The layout that was chosen; None for the one beside the dump, or none."""
    from deltastore.validate.live import read_layout

    if choice.layout is not None:
        return read_layout(choice.layout)
    if choice.engine is None:
        if choice.rank or choice.config:
            raise UsageError("usage", "--rank and --config are an engine's: name it with --engine")
        return None
    _, layout = await stream_layout(store, version, choice.config, choice.engine, choice.rank)
    return layout
