"""``deltastore show``: one version's manifest."""

from __future__ import annotations

from typing import Annotated

import typer

from deltastore.cli.arguments import Json, StreamUrl, parse_version
from deltastore.cli.output import Output

__all__ = ["show"]


def show(
    url: StreamUrl,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="A version, or 'latest'.")],
    as_json: Json = False,
) -> None:
    """Show the manifest of a version.

    What it is, what it is stored in, its digest and its metadata. With --json, the record as it stands in
    the log.
    """
    import asyncio

    from deltastore.cli.manifest_text import manifest_lines
    from deltastore.log import Log, Manifest
    from deltastore.stores.open import open_store

    output = Output(as_json=as_json)
    wanted = parse_version(version)
    store = open_store(url)

    async def run() -> Manifest:
        async with store:
            log = Log(store)
            return await (log.newest_manifest() if wanted is None else log.manifest(wanted))

    manifest = asyncio.run(run())
    output.result(manifest.model_dump(mode="json"), *manifest_lines(manifest))
