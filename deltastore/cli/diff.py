"""``deltastore diff``: what differs between two versions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from deltastore.cli.arguments import Json, StreamUrl, parse_version
from deltastore.cli.output import Output

if TYPE_CHECKING:
    from deltastore.history.comparing import Comparison

__all__ = ["diff"]

Before = Annotated[str, typer.Argument(metavar="A", help="A version, or 'latest'.")]
After = Annotated[str, typer.Argument(metavar="B", help="Another one, or 'latest'.")]
TensorOption = Annotated[
    str | None,
    typer.Option(
        "--tensor",
        metavar="NAME",
        help="Only tensors of this name, which may have * ? [...] as in a shell; each one is then listed.",
    ),
]


def diff(
    url: StreamUrl, before: Before, after: After, tensor: TensorOption = None, as_json: Json = False
) -> None:
    """Show what differs between two versions.

    By array, or by tensor with --tensor: how many elements have other bits, the largest steps in
    ordered-integer space, and by how much the digest differs; and what the manifests say otherwise. Where
    both versions grow from one anchor, only chunks are read that a delta between them patches; else both
    are replayed, chunk by chunk. Exits with 0 whether they differ or not: "equal" in --json says it.
    """
    import asyncio

    from deltastore.cli.diff_text import comparison_facts, comparison_lines
    from deltastore.cli.progress import progress_bar
    from deltastore.history.comparing import compare_versions
    from deltastore.stores.open import open_store

    output = Output(as_json=as_json)
    versions = parse_version(before), parse_version(after)
    store = open_store(url)

    async def run() -> Comparison:
        async with store:
            with progress_bar(f"comparing versions of {store.url}") as progress:
                return await compare_versions(store, *versions, only=tensor, progress=progress)

    found = asyncio.run(run())
    lines = comparison_lines(found, by_tensor=tensor is not None)
    output.result({"url": store.url, **comparison_facts(found)}, *lines)
