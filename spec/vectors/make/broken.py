"""Stores that break one requirement each, as edits of a store that is sound."""

from __future__ import annotations

from pathlib import Path

from spec.vectors.make.breaking import Broken, Fields, edits
from spec.vectors.make.broken_anchors import anchors
from spec.vectors.make.broken_logs import logs
from spec.vectors.make.broken_objects import objects
from spec.vectors.make.broken_packs import packs
from spec.vectors.make.broken_tables import tables
from spec.vectors.make.objects import load

_STREAMS = Path(__file__).parents[1] / "streams"


def _row(broken: Broken) -> Fields:
    before = load(_STREAMS / broken.base)
    after = dict(before)
    where = broken.harm(after)
    return {
        "name": broken.name,
        "base": broken.base,
        "edits": edits(before, after, broken.links, broken.pipes),
        "code": broken.code,
        "check": broken.check,
        "where": where,
        "level": broken.level,
        "version": broken.version,
    }


def vectors() -> object:
    """A sound store and edits -> what a validation finds first, and a version that no reader may read."""
    every = [*logs(), *tables(), *objects(), *packs(), *anchors()]
    names = [broken.name for broken in every]
    if len(set(names)) != len(names):
        raise ValueError("two broken stores of one name")
    return [_row(broken) for broken in every]
