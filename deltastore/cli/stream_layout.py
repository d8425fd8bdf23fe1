"""The layout that ``plan`` and ``pull`` look at a stream through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from deltastore.cli.engines import EngineChoice, layout_from_options
from deltastore.errors import NotFoundError

if TYPE_CHECKING:
    from deltastore.layout.pieces import Layout
    from deltastore.log import Manifest
    from deltastore.stores.base import Store

__all__ = ["ConfigOption", "stream_layout"]

ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config", metavar="PATH", help="A config.json, or its folder; by default the one that is carried."
    ),
]


async def stream_layout(
    store: Store, version: int | None, config: str | None, choice: EngineChoice, rank: int
) -> tuple[Manifest, Layout]:
    """A version (None: the newest) of the stream in ``store``, and how process ``rank`` of an engine has it.

    ``config``: a path; None for the configuration that the stream carries.
    """
    from deltastore.carried_config import carried_config
    from deltastore.log import Log

    log = Log(store)
    manifest = await (log.newest_manifest() if version is None else log.manifest(version))
    if config is not None:
        return manifest, layout_from_options(config, choice, rank)
    try:
        carried = await carried_config(store, manifest)
    except NotFoundError as error:
        raise NotFoundError(error.code, f"{error} with --config", where=error.where) from None
    return manifest, layout_from_options(carried, choice, rank)
