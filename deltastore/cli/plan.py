"""``deltastore plan``: what one process of an engine would fetch of a version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deltastore.cli.arguments import LATEST, Json, StreamUrl, Version, parse_version
from deltastore.cli.engines import EngineChoice, Rank, with_engine_options
from deltastore.cli.output import Output
from deltastore.cli.stream_layout import ConfigOption, stream_layout

if TYPE_CHECKING:
    from deltastore.layout.pieces import Layout
    from deltastore.log import Manifest
    from deltastore.reader.needed import Needed
    from deltastore.stores.base import Store

__all__ = ["plan"]


@with_engine_options
def plan(
    url: StreamUrl,
    choice: EngineChoice,
    version: Version = LATEST,
    rank: Rank = 0,
    config: ConfigOption = None,
    as_json: Json = False,
) -> None:
    """Show what one process of an engine fetches of a version.

    Which packs, which byte ranges of them, and how much that is beside what the process needs and beside all
    of the version. Fetches indexes, and no weights.
    """
    import asyncio

    from deltastore.reader.needed import Needed
    from deltastore.replay import read_table
    from deltastore.stores.open import open_store

    output = Output(as_json=as_json)
    wanted = parse_version(version)
    store = open_store(url)

    async def run() -> tuple[dict[str, Any], list[str]]:
        async with store:
            manifest, layout = await stream_layout(store, wanted, config, choice, rank)
            needed = Needed.of(await read_table(store, manifest.table), layout)
            return await _planned(store, manifest, layout, needed)

    facts, lines = asyncio.run(run())
    output.result({"url": store.url, **facts}, *lines)


async def _planned(
    store: Store, record: Manifest, layout: Layout, needed: Needed
) -> tuple[dict[str, Any], list[str]]:
    from deltastore.anchors.portion import AnchorPortion
    from deltastore.cli.plan_text import anchor_facts, anchor_lines, delta_facts, delta_lines
    from deltastore.format.records import AnchorRecord
    from deltastore.reader.fetch_plan import plan_delta

    if isinstance(record, AnchorRecord):
        portion = await AnchorPortion.open(store, record.version, record.anchor, needed.table)
        facts = anchor_facts(record, await portion.plan(needed.chunks), layout, needed)
        return facts, anchor_lines(facts)
    found = await plan_delta(store, record, needed)
    facts = delta_facts(found, layout, needed)
    return facts, delta_lines(facts, found)
