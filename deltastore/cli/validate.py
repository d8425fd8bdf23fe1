"""``deltastore validate``: is every byte of a stream what it should be?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from deltastore.cli.arguments import Json, StreamUrl, parse_version
from deltastore.cli.engines import EngineChoice, Rank, with_optional_engine
from deltastore.cli.heap import share_one_heap
from deltastore.cli.live import LiveChoice, compare
from deltastore.cli.output import Output
from deltastore.cli.stream_layout import ConfigOption
from deltastore.cli.validate_options import (
    ChecksOption,
    DeepOption,
    JobsOption,
    LayoutPath,
    LevelName,
    LevelOption,
    LimitOption,
    LivePath,
    NonceOption,
    ResumeOption,
    VersionOption,
)
from deltastore.errors import UsageError

if TYPE_CHECKING:
    from deltastore.stores.base import Store
    from deltastore.validate import Report

__all__ = ["how_to_go_on", "validate"]


@with_optional_engine
def validate(
    url: StreamUrl,
    choice: EngineChoice | None,
    level: LevelOption = None,
    deep: DeepOption = False,
    version: VersionOption = None,
    jobs: JobsOption = None,
    resume: ResumeOption = None,
    limit: LimitOption = 100,
    checks: ChecksOption = False,
    live: LivePath = None,
    nonce: NonceOption = None,
    layout: LayoutPath = None,
    rank: Rank = 0,
    config: ConfigOption = None,
    as_json: Json = False,
) -> None:
    """Check every byte of a stream.

    Every requirement of SPEC.md that stored bytes can break is a check: records and tables, hashes, indexes,
    patches, anchors, and with --deep the digest of every version by replay. A damaged object hides no other:
    all are counted, the first --limit listed, and the newest sound version is named. Takes less than 300 MB
    of memory, however much the stream holds, and more only where one JSON object is of megabytes (50 bytes
    for each of its bytes) or, with --deep, where one chunk spans many tensors (1.2 KB for each, twice).

    Exits with 12 if anything is damaged, else with 13 if anything is of a newer format or an unknown kind,
    else with 1 if the store failed to give something. The log is read to its end whatever --version says.

    --resume notes a version once it was read, and as replayed once its anchor and all that grows from it was:
    a replay that is interrupted starts with that anchor again. Damage that is found revokes notes.

    With --live it proves instead that an engine's weights are a version (--version; by default the one that
    readers attest, for a dump the newest), bit by bit, and names what is not. A dump by parameter names needs
    a layout: the engine's options, as for pull, or a layout.json, and its files must not be cut meanwhile. It
    says which share of the model was compared; readers that claim different versions are an error.

    --deep and --live write a temporary file of 60 bytes for each index row of the deltas of an anchor, where
    TMPDIR says; where that is a tmpfs, it takes memory. Where more than 65,536 rows of a version are in
    packs that reach over one another, they stand in such a file too, 44 bytes each.
    """
    share_one_heap()
    _check_usage(live, bool(layout or choice or config or rank or nonce), level or deep or resume or checks)
    if layout is not None and choice is not None:
        raise UsageError("usage", "--layout and --engine are two layouts: leave one of them out")
    if live is not None:
        compare(url, live, LiveChoice(version, layout, choice, rank, config, jobs, nonce), as_json=as_json)
        return
    if deep and level not in (None, "deep"):
        raise UsageError("usage", f"--deep is --level deep: leave out one of --deep and --level {level}")
    wanted: LevelName = "deep" if deep else level or "content"
    if resume is not None and wanted == "structure":
        raise UsageError("usage", "--resume notes content, and --level structure reads none: leave one out")
    _check(url, _Choice(wanted, version, jobs, resume, limit), checks=checks, as_json=as_json)


@dataclass(frozen=True, slots=True)
class _Choice:
    """What of a stream is checked, and how."""

    level: LevelName
    version: str | None
    jobs: int | None
    resume: Path | None
    limit: int


def _check(url: str, choice: _Choice, *, checks: bool, as_json: bool) -> None:
    """Check, print what was found, and exit with what it is."""
    import asyncio

    from deltastore.cli.validate_text import check_lines, facts_of, problem_line, report_lines
    from deltastore.cli.wording import plain
    from deltastore.stores.open import open_store

    output, store = Output(as_json=as_json), open_store(url)
    try:
        report = asyncio.run(_report(store, choice))
    except KeyboardInterrupt:
        output.warn(how_to_go_on(choice.resume))
        raise
    lines = [*report_lines(report), *(check_lines(report) if checks else ())]
    output.result({"url": store.url, **facts_of(report)}, *lines)
    if not report.ok:
        output.fail(plain(problem_line(report)))
        raise typer.Exit(report.exit_status)


async def _report(store: Store, choice: _Choice) -> Report:
    from deltastore.cli.progress import progress_bar
    from deltastore.kernels.threads import chosen_threads
    from deltastore.validate import Level
    from deltastore.validate import validate as validate_stream

    number = None if choice.version is None else parse_version(choice.version)
    async with store:
        with progress_bar(f"checking {store.url}") as progress:
            return await validate_stream(
                store,
                level=Level[choice.level.upper()],
                version=number,
                newest=choice.version is not None and number is None,
                jobs=2 * chosen_threads(None) if choice.jobs is None else choice.jobs,
                progress=progress,
                resume=choice.resume,
                limit=choice.limit,
            )


def _check_usage(live: Path | None, live_only: bool, stream_only: object) -> None:
    if live is None and live_only:
        raise UsageError(
            "usage", "--engine, --layout, --rank, --config and --nonce are about what --live names: give that"
        )
    if live is not None and stream_only:
        raise UsageError(
            "usage", "--live compares weights: leave out --level, --deep, --resume and --checks, or run both"
        )


def how_to_go_on(resume: Path | None) -> str:
    """What to do after an interrupt."""
    if resume is None:
        return "interrupted, and nothing is noted: with --resume FILE the next run skips what was noted"
    try:
        noted = resume.is_file() and resume.read_bytes().count(b"\n") > 1
    except OSError:
        noted = False
    if not noted:
        return f"interrupted before any version was noted in {resume}"
    return f"interrupted: give --resume {resume} again to skip what is noted there"
