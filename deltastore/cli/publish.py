"""``deltastore publish``: a checkpoint becomes the next version of a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltastore.cli.arguments import Json, Label, SingleWriter, StreamUrl, parse_label, parse_metadata
from deltastore.cli.output import Output

if TYPE_CHECKING:
    from deltastore.writer.published import Published

__all__ = ["publish"]

Checkpoint = Annotated[
    str,
    typer.Argument(metavar="CKPT", help="A safetensors file, or a folder of a Hugging Face checkpoint."),
]
Number = Annotated[
    int | None,
    typer.Option("--version", metavar="N", min=0, help="Its number, by default the last one + 1."),
]
Step = Annotated[
    int | None, typer.Option("--step", metavar="S", min=0, help="The trainer's step, kept as metadata.")
]
Meta = Annotated[
    list[str] | None,
    typer.Option("--meta", metavar="KEY=VALUE", help="More metadata, as text. May be repeated."),
]


def publish(
    url: StreamUrl,
    checkpoint: Checkpoint,
    version: Number = None,
    step: Step = None,
    meta: Meta = None,
    label: Label = "",
    single_writer: SingleWriter = False,
    as_json: Json = False,
) -> None:
    """Publish a checkpoint as the next version.

    CKPT must have exactly the stream's tensors; what changed since the newest version is stored. Other files
    are not: the stream keeps those that init carried. This begins a new epoch: a trainer that is still
    publishing to the stream is fenced and fails.
    """
    import asyncio

    from deltastore.cli.progress import progress_bar
    from deltastore.log import Log
    from deltastore.stream import store_of
    from deltastore.writer.carrying import changed_files
    from deltastore.writer.from_checkpoint import publish_checkpoint

    output = Output(as_json=as_json)
    notes = parse_metadata(meta or [], step)
    by = parse_label(label)
    store = store_of(url, single_writer=single_writer)

    async def run() -> tuple[Published, tuple[str, ...]]:
        async with store:
            log = Log(store)
            stale = await changed_files(checkpoint, await log.carried_files(await log.tip()))
            with progress_bar(f"reading {checkpoint}") as progress:
                published = await publish_checkpoint(
                    store, checkpoint, version=version, metadata=notes, label=by, progress=progress
                )
            return published, stale

    published, stale = asyncio.run(run())
    for name in stale:
        output.warn(f"{name} is not what the stream carries, and was not published")
    output.result({"url": store.url, **_facts(published)}, _line(published))


def _facts(published: Published) -> dict[str, Any]:
    from deltastore.cli.wording import per_element

    return {
        "version": published.version,
        "kind": published.kind,
        "slot": published.slot,
        "changed": published.changed,
        "elements": published.elements,
        "bytes": published.nbytes,
        "manifest_bytes": published.manifest_bytes,
        "bytes_per_changed": per_element(published.nbytes, published.changed),
        "seconds": round(published.seconds, 3),
    }


def _line(published: Published) -> str:
    from deltastore.cli.wording import per_element, percent, plural, size

    share = percent(published.changed, published.elements)
    counts = f"{published.changed:,} of {plural(published.elements, 'element')}"
    cost = per_element(published.nbytes, published.changed)
    each = "" if cost is None else f", {cost:.2f} bytes per changed element"
    return f"version {published.version}: {share} changed ({counts}), {size(published.nbytes)}{each}"
