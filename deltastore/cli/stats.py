"""``deltastore stats``: what versions changed, how far, and what took their bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltastore.cli.arguments import Json, StreamUrl, parse_version
from deltastore.cli.output import Output
from deltastore.cli.wording import plain
from deltastore.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltastore.history.plotting import Picture
    from deltastore.history.version_stats import VersionStats

__all__ = ["stats"]

From = Annotated[
    str | None, typer.Option("--from", metavar="V", help="The first version. [default: the first]")
]
To = Annotated[str | None, typer.Option("--to", metavar="V", help="The last version. [default: the newest]")]
PacksOnly = Annotated[
    bool,
    typer.Option(
        "--packs-only",
        help="Read packs and no weights: less to fetch, but steps are known by their width only, and what is "
        "counted are elements written, changed or not.",
    ),
]
Layers = Annotated[bool, typer.Option("--layers", help="List every layer.")]
Plot = Annotated[
    str | None,
    typer.Option("--plot", metavar="FILE", help="Draw it: FILE ends in .png or .svg. Needs matplotlib."),
]


def stats(
    url: StreamUrl,
    first: From = None,
    last: To = None,
    packs_only: PacksOnly = False,
    layers: Layers = False,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Show what versions changed, how far, and what took their bytes.

    By version, array and layer: the share of elements that changed, their steps in ordered-integer space
    (+1 is the next representable number), and bytes for each beside the bound, the entropy of positions and
    steps. Weights are replayed from their anchors, some chunks at a time, with index rows in a
    temporary file (60 bytes each, where TMPDIR says).
    """
    import asyncio

    from deltastore.cli.progress import progress_bar
    from deltastore.cli.stats_text import stats_lines
    from deltastore.history.counting import stream_stats
    from deltastore.log import Log
    from deltastore.stores.open import open_store

    output = Output(as_json=as_json)
    start, end = (None if one is None else parse_version(one) for one in (first, last))
    picture = None if plot is None else _picture(plot)
    store = open_store(url)

    async def run() -> list[VersionStats]:
        async with store:
            with progress_bar(f"reading {store.url}") as progress:
                # The newest version has a number only in the log.
                newest = first is not None and start is None
                begin = (await Log(store).newest_manifest()).version if newest else start
                return await stream_stats(store, begin, end, packs_only=packs_only, progress=progress)

    found = asyncio.run(run())
    empty = picture is not None and all(one.kind != "delta" for one in found)
    failure = None if picture is None or empty else _draw(picture, found, plain(store.url))
    drawn = None if failure is not None or empty else plot
    facts: dict[str, Any] = {"url": store.url, "versions": [one.as_json() for one in found], "plot": drawn}
    if failure is not None:
        facts["error"] = {"code": failure.code, "message": str(failure), "where": failure.where}
    output.result(facts, *stats_lines(found, layers=layers), *_about_plot(drawn, empty=empty))
    if failure is not None:
        output.fail(plain(failure))
        raise typer.Exit(failure.exit_status)


def _picture(plot: str) -> Picture:
    """Where to draw, found out before anything is read: what is missing is no surprise at the end."""
    from deltastore.history.plotting import Picture

    return Picture(plot)


def _about_plot(drawn: str | None, *, empty: bool) -> list[str]:
    if empty:
        return ["nothing to draw: no delta is among these versions"]
    return [] if drawn is None else [f"drawn in {plain(drawn)}"]


def _draw(picture: Picture, found: Sequence[VersionStats], url: str) -> InputError | None:
    """Draw; why that failed, since statistics are worth showing without a picture."""
    try:
        picture.write(found, url)
    except InputError as error:
        return error
    return None
