"""What is fetched of a version, in facts and in lines for people."""

from __future__ import annotations

from typing import Any

from deltastore.anchors.portion_plan import AnchorPlan
from deltastore.cli.wording import percent, plain, plural, size
from deltastore.format.records import AnchorRecord
from deltastore.layout.pieces import Layout
from deltastore.log import Manifest
from deltastore.reader.fetch_plan import FetchPlan, PackPlan
from deltastore.reader.needed import Needed

__all__ = ["anchor_facts", "anchor_lines", "delta_facts", "delta_lines"]


def delta_facts(found: FetchPlan, layout: Layout, needed: Needed) -> dict[str, Any]:
    """What is fetched of a version that is stored as a delta."""
    return {
        **_facts(found.record, found, layout, needed),
        "base": found.record.base,
        "delta_bytes": found.total_bytes,
        "packs": [
            {
                "sha256": one.pack.sha256,
                "bytes": one.pack.bytes,
                "slabs": list(one.pack.slabs),
                "whole": one.whole,
                "patches": len(one.rows),
                "rows": one.pack.rows,
                "ranges": [list(span) for span in one.ranges],
                "index_bytes": one.index_bytes,
                "needed_bytes": one.needed_bytes,
                "requests": one.requests,
                "fetched_bytes": one.nbytes,
            }
            for one in found.packs
        ],
    }


def anchor_facts(record: AnchorRecord, found: AnchorPlan, layout: Layout, needed: Needed) -> dict[str, Any]:
    """What is fetched of a version that is stored whole."""
    return {
        **_facts(record, found, layout, needed),
        "anchor_bytes": record.statistics.bytes + record.anchor.inventory_bytes,
        "sums_bytes": found.sums_bytes,
        "objects": [
            {
                "key": record.anchor.prefix(record.version) + one.entry.key,
                "bytes": one.entry.bytes,
                "whole": one.ranges is None,
                "chunks": len(one.chunks),
                "ranges": [list(span) for span in one.ranges or ((0, one.entry.bytes),)],
                "index_bytes": one.index_bytes,
                "needed_bytes": one.needed_bytes,
                "requests": one.requests,
                "fetched_bytes": one.nbytes,
            }
            for one in found.objects
        ],
    }


def _facts(record: Manifest, found: FetchPlan | AnchorPlan, layout: Layout, needed: Needed) -> dict[str, Any]:
    return {
        "version": record.version,
        "kind": record.kind,
        "layout": layout.name,
        "chunks": len(needed),
        "chunks_in_part": int((~needed.whole).sum()),
        "requests": found.requests,
        "bytes": found.nbytes,
        "needed_bytes": found.needed_bytes,
        "index_bytes": found.index_bytes,
    }


def delta_lines(facts: dict[str, Any], found: FetchPlan) -> list[str]:
    """The facts, and a line for each pack."""
    return [*_lines(facts, facts["delta_bytes"], "patches", "indexes"), *map(_pack_line, found.packs)]


def anchor_lines(facts: dict[str, Any]) -> list[str]:
    """The facts, and how many objects they are of."""
    whole = sum(one["whole"] for one in facts["objects"])
    return [
        *_lines(facts, facts["anchor_bytes"], "chunks", "metadata, indexes and sums"),
        f"  objects {len(facts['objects']):,}, of which {whole:,} are fetched whole",
    ]


def _lines(facts: dict[str, Any], total: int, of: str, beside: str) -> list[str]:
    return [
        f"version {facts['version']} for {plain(facts['layout'])}: {plural(facts['requests'], 'request')}, "
        f"{size(facts['bytes'])} of {size(total)} ({percent(facts['bytes'], total)})",
        f"  needed  {size(facts['needed_bytes'])} of {of}, {size(facts['index_bytes'])} of {beside}",
        f"  chunks  {facts['chunks']:,}, of which {facts['chunks_in_part']:,} are held in part",
    ]


def _pack_line(one: PackPlan) -> str:
    first, last = one.pack.slabs
    slabs = f"slab {first}" if first == last else f"slabs {first} to {last}"
    if not one.requests:
        how = "nothing of it"
    elif one.whole:
        how = "whole"
    else:
        spans = ", ".join(f"[{start}, {end})" for start, end in one.ranges)
        how = f"index and {spans}" if spans else "index"
    return (
        f"  pack {one.pack.sha256[:12]}  {slabs:<14}  {len(one.rows):>6,} of {one.pack.rows:,} patches, "
        f"{size(one.nbytes)} of {size(one.pack.bytes)}: {how}"
    )
