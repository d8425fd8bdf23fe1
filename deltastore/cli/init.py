"""``deltastore init``: a checkpoint becomes version 0 of a new stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltastore.cli.arguments import Json, Label, SingleWriter, StreamUrl, parse_label
from deltastore.cli.output import Output

if TYPE_CHECKING:
    from deltastore.writer.from_checkpoint import Created

__all__ = ["init"]

Source = Annotated[
    str,
    typer.Option(
        "--from", metavar="CKPT", help="A safetensors file, or a folder of a Hugging Face checkpoint."
    ),
]


def init(
    url: StreamUrl,
    source: Source,
    label: Label = "",
    single_writer: SingleWriter = False,
    as_json: Json = False,
) -> None:
    """Make a stream from a checkpoint.

    CKPT is stored whole as version 0. Configuration and tokenizer files beside its weights are carried, and
    written back by export.
    """
    import asyncio

    from deltastore.cli.progress import progress_bar
    from deltastore.stream import store_of
    from deltastore.writer.from_checkpoint import create_from_checkpoint

    output = Output(as_json=as_json)
    by = parse_label(label)
    store = store_of(url, single_writer=single_writer)

    async def run() -> Created:
        async with store:
            with progress_bar(f"reading {source}") as progress:
                return await create_from_checkpoint(store, source, label=by, progress=progress)

    created = asyncio.run(run())
    for warning in created.warnings:
        output.warn(warning)
    output.result({"url": store.url, **_facts(created)}, *_lines(store.url, created))


def _facts(created: Created) -> dict[str, Any]:
    first = created.first
    return {
        "version": first.version,
        "kind": first.kind,
        "slot": first.slot,
        "tensors": created.tensors,
        "elements": first.elements,
        "bytes": first.nbytes,
        "manifest_bytes": first.manifest_bytes,
        "files": [{"name": file.name, "bytes": file.bytes, "sha256": file.sha256} for file in created.files],
        "seconds": round(first.seconds, 3),
    }


def _lines(url: str, created: Created) -> list[str]:
    from deltastore.cli.wording import plain, plural, size

    first = created.first
    counts = f"{plural(created.tensors, 'tensor')}, {plural(first.elements, 'element')}, {size(first.nbytes)}"
    carried = [f"  with {plain(file.name)}, {size(file.bytes)}" for file in created.files]
    return [f"version {first.version} of {plain(url)}: {counts}", *carried]
