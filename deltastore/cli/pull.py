"""``deltastore pull``: what one process of an engine holds at a version, as a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from deltastore.cli.arguments import LATEST, Json, StreamUrl, Version, parse_version
from deltastore.cli.engines import EngineChoice, Rank, with_engine_options
from deltastore.cli.output import Output
from deltastore.cli.stream_layout import ConfigOption, stream_layout

if TYPE_CHECKING:
    from deltastore.pull import Pulled

__all__ = ["pull"]

Out = Annotated[str, typer.Option("--out", metavar="DIR", help="The directory to write, made if absent.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the files of the same names in DIR.")]


@with_engine_options
def pull(
    url: StreamUrl,
    choice: EngineChoice,
    out: Out,
    version: Version = LATEST,
    rank: Rank = 0,
    config: ConfigOption = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write the parameters that one process of an engine holds at a version.

    DIR gets parameters.safetensors, with every parameter by the engine's own name, in its shape, padding as
    zeros, and layout.json, which says where each element comes from. Only the shard is fetched. A way to
    compare any engine with the store by hand.
    """
    import asyncio

    from deltastore.pull import pull_shard
    from deltastore.stores.open import open_store

    output = Output(as_json=as_json)
    wanted = parse_version(version)
    store = open_store(url)

    async def run() -> Pulled:
        async with store:
            manifest, layout = await stream_layout(store, wanted, config, choice, rank)
            return await pull_shard(store, layout, manifest.version, out, force=force)

    pulled = asyncio.run(run())
    output.result({"url": store.url, **_facts(pulled)}, _line(pulled))


def _facts(pulled: Pulled) -> dict[str, Any]:
    return {
        "version": pulled.synced.version,
        "out": str(pulled.directory),
        "parameters": pulled.params,
        "bytes": pulled.nbytes,
        "fetched_bytes": pulled.synced.nbytes,
        "requests": pulled.synced.requests,
    }


def _line(pulled: Pulled) -> str:
    from deltastore.cli.wording import plain, plural, size

    params = f"{plural(pulled.params, 'parameter')}, {size(pulled.nbytes)}"
    fetched = f"{size(pulled.synced.nbytes)} fetched in {plural(pulled.synced.requests, 'request')}"
    return f"version {pulled.synced.version} in {plain(pulled.directory)}: {params}; {fetched}"
