"""Stores that lie about sound objects."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from deltastore.stores.base import Store
from deltastore.validate import Level

from .attack import OLD, WRITER, Attack, attack
from .lying_stores import (
    EndlessLogStore,
    FickleStore,
    ForeignListingStore,
    LongStore,
    LyingSizesStore,
    ShiftedStore,
    ShortStore,
)
from .resealing import Objects
from .ways import FOLLOWERS, READERS

UNREAD = READERS | WRITER
OF_LENGTH = "bad_length too_large bad_json bad_hash bad_index bad_anchor"
RULES = "DS010 DS011 DS061 DS063 DS072 DS073 DS074 DS100 DS004"


def _same(objects: Objects) -> Objects:
    return objects


def _lie(
    name: str,
    lie: Callable[[Store], Store],
    codes: str,
    rules: str,
    *,
    level: Level = Level.CONTENT,
    passes: frozenset[str] = frozenset(),
) -> Attack:
    return attack(f"store: {name}", _same, codes, rules, level=level, passes=passes, lie=lie)


def _fickle(room: str) -> Attack:
    """Each answer but the first one is wrong, for whoever asks again."""
    codes, rules = f"{OF_LENGTH} bad_patch bad_chain bad_digest", f"{RULES} DS006 DS013 DS044 DS051"
    lie = partial(FickleStore, prefix=f"{room}/")
    return attack(f"store: fickle about {room}", _same, codes, rules, level=Level.DEEP, lie=lie, either=True)


def attacks() -> list[Attack]:
    """All of them."""
    found = []
    rooms = {"log": frozenset[str](), "tables": FOLLOWERS, "packs": WRITER, "anchors": OLD}
    for room, passes in rooms.items():
        first = Level.STRUCTURE if room in ("log", "tables") else Level.CONTENT
        for name, store in (("short", ShortStore), ("long", LongStore)):
            lie = partial(store, prefix=f"{room}/")
            found.append(_lie(f"{name} answers of {room}", lie, OF_LENGTH, RULES, level=first, passes=passes))
    return [
        *found,
        *(_fickle(room) for room in ("log", "tables", "packs", "anchors", "files")),
        _lie(
            "ranges beside those asked for",
            ShiftedStore,
            "bad_hash bad_index bad_anchor",
            RULES + " DS044 DS071 DS070",
            level=Level.DEEP,
            passes=frozenset({"reader", "pull", "writer"}) | FOLLOWERS,
        ),
        _lie(
            "another record the second time",
            partial(FickleStore, prefix="log/00000000000000000006"),
            "bad_json bad_hash bad_chain",
            RULES + " DS006 DS013 DS051",
            passes=UNREAD - {"replay"},
        ),
        _lie(
            "a slot for every number",
            EndlessLogStore,
            "bad_chain lost_object",
            "DS063 DS050 DS051 DS100",
            level=Level.STRUCTURE,
            passes=frozenset({"follower", "shard follower", "structure"}),
        ),
        _lie(
            "listings that are foreign",
            ForeignListingStore,
            "bad_anchor bad_key lost_object",
            "DS072 DS001 DS063",
            level=Level.STRUCTURE,
            passes=UNREAD,
        ),
        _lie(
            "sizes that are others",
            LyingSizesStore,
            "too_large bad_length",
            "DS061 DS063 DS073",
            level=Level.STRUCTURE,
            passes=UNREAD,
        ),
    ]
