"""``deltastore init``: a checkpoint becomes version 0 of a new stream."""

from __future__ import annotations

from typing import Annotated

import typer

from deltastore.cli.arguments import Json, Label, StreamUrl, parse_label
from deltastore.cli.output import Output

__all__ = ["init"]


def init(
    url: StreamUrl,
    source: Annotated[
        str,
        typer.Option(
            "--from", metavar="CKPT", help="A safetensors file, or a folder of a Hugging Face checkpoint."
        ),
    ],
    label: Label = "",
    as_json: Json = False,
) -> None:
    """Make a new stream whose version 0 is the checkpoint CKPT, stored whole.

    Configuration and tokenizer files beside the weights are carried, and written back by export.
    """
    import asyncio

    from deltastore.cli.progress import progress_bar
    from deltastore.cli.wording import plain, plural, size
    from deltastore.stores.open import open_store
    from deltastore.writer.from_checkpoint import Created, create_from_checkpoint

    output = Output(as_json=as_json)
    by = parse_label(label)
    store = open_store(url)

    async def run() -> Created:
        async with store:
            with progress_bar(f"reading {source}") as progress:
                return await create_from_checkpoint(store, source, label=by, progress=progress)

    made = asyncio.run(run())
    for warning in made.warnings:
        output.warn(warning)
    first = made.first
    facts = {
        "url": store.url,
        "version": first.version,
        "kind": first.kind,
        "slot": first.slot,
        "tensors": made.tensors,
        "elements": first.elements,
        "bytes": first.nbytes,
        "files": [{"name": file.name, "bytes": file.bytes, "sha256": file.sha256} for file in made.files],
        "seconds": round(first.seconds, 3),
    }
    carried = "".join(f"\n  with {plain(file.name)}, {size(file.bytes)}" for file in made.files)
    output.result(
        facts,
        f"version {first.version} of {plain(store.url)}: {plural(made.tensors, 'tensor')}, "
        f"{plural(first.elements, 'element')}, {size(first.nbytes)}{carried}",
    )
