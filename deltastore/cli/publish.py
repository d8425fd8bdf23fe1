"""``deltastore publish``: a checkpoint becomes the next version of a stream."""

from __future__ import annotations

from typing import Annotated

import typer

from deltastore.cli.arguments import Json, Label, StreamUrl, parse_label, parse_metadata
from deltastore.cli.output import Output

__all__ = ["publish"]


def publish(
    url: StreamUrl,
    checkpoint: Annotated[
        str,
        typer.Argument(metavar="CKPT", help="A safetensors file, or a folder of a Hugging Face checkpoint."),
    ],
    version: Annotated[
        int | None,
        typer.Option("--version", metavar="N", min=0, help="Its number, by default the last one + 1."),
    ] = None,
    step: Annotated[
        int | None, typer.Option("--step", metavar="S", help="The trainer's step, kept as metadata.")
    ] = None,
    meta: Annotated[
        list[str] | None,
        typer.Option("--meta", metavar="KEY=VALUE", help="More metadata, as text. May be repeated."),
    ] = None,
    label: Label = "",
    as_json: Json = False,
) -> None:
    """Commit the checkpoint CKPT as the next version, stored as what changed since the newest one.

    It must have exactly the stream's tensors. This begins a new epoch: a trainer that is still publishing
    to the stream is fenced and fails.
    """
    import asyncio

    from deltastore.cli.progress import progress_bar
    from deltastore.cli.wording import per_element, percent, plural, size
    from deltastore.stores.open import open_store
    from deltastore.writer.from_checkpoint import publish_checkpoint
    from deltastore.writer.publishing import Published

    output = Output(as_json=as_json)
    metadata = parse_metadata(meta or [], step)
    by = parse_label(label)
    store = open_store(url)

    async def run() -> Published:
        async with store:
            with progress_bar(f"reading {checkpoint}") as progress:
                return await publish_checkpoint(
                    store, checkpoint, version=version, metadata=metadata, label=by, progress=progress
                )

    done = asyncio.run(run())
    cost = per_element(done.nbytes, done.changed)
    facts = {
        "url": store.url,
        "version": done.version,
        "kind": done.kind,
        "slot": done.slot,
        "changed": done.changed,
        "elements": done.elements,
        "bytes": done.nbytes,
        "manifest_bytes": done.manifest_bytes,
        "bytes_per_changed": cost,
        "seconds": round(done.seconds, 3),
    }
    each = "" if cost is None else f", {cost:.2f} bytes per changed element"
    output.result(
        facts,
        f"version {done.version}: {percent(done.changed, done.elements)} changed "
        f"({done.changed:,} of {plural(done.elements, 'element')}), {size(done.nbytes)}{each}",
    )
