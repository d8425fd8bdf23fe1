"""``deltastore export``: a version becomes a Hugging Face checkpoint again."""

from __future__ import annotations

from typing import Annotated

import typer

from deltastore.cli.arguments import LATEST, Json, StreamUrl, parse_version
from deltastore.cli.output import Output

__all__ = ["export"]


def export(
    url: StreamUrl,
    out: Annotated[str, typer.Option("--out", metavar="DIR", help="The directory to write, made if absent.")],
    version: Annotated[
        str, typer.Option("--version", metavar="N", help="A version, by default the newest one.")
    ] = LATEST,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the weights in DIR, and files of the same names.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write a version as a Hugging Face safetensors checkpoint, with the files that it was made with.

    Every tensor has the bytes that were published. The digest of all of them is checked before anything
    appears in DIR, which must be empty unless --force is given.
    """
    import asyncio

    from deltastore.cli.progress import progress_bar
    from deltastore.cli.wording import plain, plural, size
    from deltastore.export import Exported, export_version
    from deltastore.stores.open import open_store

    output = Output(as_json=as_json)
    wanted = parse_version(version)
    store = open_store(url)

    async def run() -> Exported:
        async with store:
            with progress_bar(f"writing {out}") as progress:
                return await export_version(store, wanted, out, force=force, progress=progress)

    done = asyncio.run(run())
    files = [*done.weights, *done.files]
    facts = {
        "url": store.url,
        "version": done.version,
        "out": str(done.directory),
        "files": [file.name for file in files],
        "tensors": done.tensors,
        "bytes": done.nbytes,
        "digest": done.digest,
    }
    output.result(
        facts,
        f"version {done.version} in {plain(done.directory)}: {plural(done.tensors, 'tensor')}, "
        f"{size(done.nbytes)}, {plural(len(files), 'file')}, digest {done.digest}",
    )
