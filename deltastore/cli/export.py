"""``deltastore export``: a version becomes a Hugging Face checkpoint again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltastore.cli.arguments import LATEST, Json, StreamUrl, parse_version
from deltastore.cli.output import Output

if TYPE_CHECKING:
    from deltastore.export import Exported

__all__ = ["export"]

Out = Annotated[str, typer.Option("--out", metavar="DIR", help="The directory to write, made if absent.")]
Version = Annotated[str, typer.Option("--version", metavar="N", help="A version, by default the newest one.")]
Force = Annotated[
    bool, typer.Option("--force", help="Replace the weights in DIR, and files of the same names.")
]


def export(
    url: StreamUrl, out: Out, version: Version = LATEST, force: Force = False, as_json: Json = False
) -> None:
    """Write a version as a checkpoint.

    DIR becomes a Hugging Face safetensors checkpoint with the configuration and tokenizer files that the
    stream carries. Every tensor has the bytes that were published; the digest of all of them is checked
    before anything appears in DIR, which must be empty unless --force is given.
    """
    import asyncio

    from deltastore.cli.progress import progress_bar
    from deltastore.export import export_version
    from deltastore.stores.open import open_store

    output = Output(as_json=as_json)
    wanted = parse_version(version)
    store = open_store(url)

    async def run() -> Exported:
        async with store:
            with progress_bar(f"writing {out}") as progress:
                return await export_version(store, wanted, out, force=force, progress=progress)

    exported = asyncio.run(run())
    output.result({"url": store.url, **_facts(exported)}, _line(exported))


def _facts(exported: Exported) -> dict[str, Any]:
    return {
        "version": exported.version,
        "out": str(exported.directory),
        "files": [path.name for path in (*exported.weights, *exported.files)],
        "tensors": exported.tensors,
        "bytes": exported.nbytes,
        "digest": exported.digest,
    }


def _line(exported: Exported) -> str:
    from deltastore.cli.wording import plain, plural, size

    files = plural(len(exported.weights) + len(exported.files), "file")
    counts = f"{plural(exported.tensors, 'tensor')}, {size(exported.nbytes)}, {files}"
    return f"version {exported.version} in {plain(exported.directory)}: {counts}, digest {exported.digest}"
