"""``deltastore init``: a checkpoint becomes version 0 of a new stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

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


Slabs = Annotated[
    int | None,
    typer.Option(
        "--slabs",
        metavar="N",
        min=0,
        help="Cut weights for tensor-parallel readers of any degree that divides N (default: 8 for a known "
        "model); 0 for the plain grid.",
    ),
]
Moe = Annotated[
    Literal["ep", "tp"] | None,
    typer.Option(
        "--moe",
        help="Experts stay whole, for expert-parallel readers (ep, the default), or are cut too (tp).",
    ),
]


def init(
    url: StreamUrl,
    source: Source,
    slabs: Slabs = None,
    moe: Moe = None,
    label: Label = "",
    single_writer: SingleWriter = False,
    as_json: Json = False,
) -> None:
    """Make a stream from a checkpoint.

    CKPT is stored whole as version 0. Configuration and tokenizer files beside its weights are carried, and
    written back by export. Weights are cut so that an engine which holds only a part of the model can fetch
    just that: where, follows from config.json; once chosen, it stays.
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
                return await create_from_checkpoint(
                    store, source, slabs=slabs, moe=moe, label=by, progress=progress
                )

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
        "slabs": created.slabs,
        "moe": created.moe,
        "files": [{"name": file.name, "bytes": file.bytes, "sha256": file.sha256} for file in created.files],
        "seconds": round(first.seconds, 3),
    }


def _lines(url: str, created: Created) -> list[str]:
    from deltastore.cli.wording import plain, plural, size

    first = created.first
    counts = f"{plural(created.tensors, 'tensor')}, {plural(first.elements, 'element')}, {size(first.nbytes)}"
    carried = [f"  with {plain(file.name)}, {size(file.bytes)}" for file in created.files]
    return [f"version {first.version} of {plain(url)}: {counts}", *_grid(created), *carried]


def _grid(created: Created) -> list[str]:
    from deltastore.cli.wording import plural

    if created.slabs == 0:
        return ["  cut by sizes alone: a process that holds a shard fetches more than it needs"]
    experts = {"ep": ", each expert whole", "tp": ", experts cut like the rest", None: ""}[created.moe]
    return [f"  cut for up to {plural(created.slabs, 'tensor-parallel reader')}{experts}"]
