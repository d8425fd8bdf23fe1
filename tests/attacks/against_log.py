"""The log: forks, splices, replays, other orders, downgrades, unknown kinds, bases that run in circles."""

from __future__ import annotations

import copy
import json

from deltastore.format.records import record_key, table_key
from deltastore.validate import Level

from .attack import OLD, WRITER, Attack, attack, record_with, rewritten
from .resealing import Objects, Rewriting, compact, records_of, resealed
from .ways import FOLLOWERS

NEWEST, OLDER, ANCHOR, SECOND_EPOCH = 6, 5, 2, 3
UNREAD = frozenset({"reader", "shard", "export", "pull", "replay", "writer"}) | FOLLOWERS
"""Who does not walk the log back to its first records, because an anchor stands before them."""


def _forked(objects: Objects) -> Objects:
    """Slot 5 of another history of the same trainer, sealed by itself: slot 6 names the first one."""
    older = records_of(objects)[OLDER]
    return {**objects, record_key(OLDER): compact(resealed({**older, "time": older["time"] + 1}))}


def _two_histories(objects: Objects) -> Objects:
    """The newest record is that of a history whose slot 5 is another."""
    records = records_of(objects)
    other = resealed({**records[OLDER], "nonce": "7" * 32})
    return {**objects, record_key(NEWEST): compact(resealed({**records[NEWEST], "parent": other["sha256"]}))}


def _at_the_end(slot: int) -> Attack:
    return attack(
        f"log: the record of slot {slot} again at the end",
        lambda objects: {**objects, record_key(7): objects[record_key(slot)]},
        "bad_chain",
        "DS051 DS050",
    )


def _swapped(one: int, other: int, passes: frozenset[str] = frozenset()) -> Attack:
    return attack(
        f"log: slots {one} and {other} swapped",
        lambda objects: {
            **objects,
            record_key(one): objects[record_key(other)],
            record_key(other): objects[record_key(one)],
        },
        "bad_chain bad_json",
        "DS051 DS050",
        passes=passes,
    )


def _reordered(slots: list[int], codes: str, rules: str, passes: frozenset[str] = frozenset()) -> Attack:
    return attack(
        f"log: slots {slots}, sealed again",
        rewritten(lambda rewriting: rewriting.reorder(slots)),
        codes,
        rules,
        passes=passes,
    )


def _appended(
    name: str, codes: str, rules: str, passes: frozenset[str] = frozenset(), **members: object
) -> Attack:
    def change(rewriting: Rewriting) -> None:
        last = copy.deepcopy(rewriting.records[NEWEST])
        rewriting.records.append({**last, "slot": 7, **members})

    return attack(name, rewritten(change), codes, rules, passes=passes)


def _no_birth(rewriting: Rewriting) -> None:
    """An epoch where the birth should be, and all epochs after it numbered on."""
    for record in rewriting.records:
        record["epoch"] += 1
    birth = rewriting.records[0]
    del birth["stream"]
    birth.update(kind="epoch", resumes=None, writer="")


def _own_table(rewriting: Rewriting) -> None:
    """The newest version has a table of its own, which is sound and there."""
    record = rewriting.records[NEWEST]
    table = json.loads(rewriting.objects[table_key(record["table"])])
    sealed = resealed({**table, "slabs": table["slabs"] + 1})
    rewriting.objects[table_key(sealed["sha256"])] = compact(sealed)
    record["table"] = sealed["sha256"]


def _said(member: str, value: int, rule: str, level: Level = Level.STRUCTURE) -> Attack:
    """Statistics of the newest version that are not true; nobody who reads depends on them."""

    def change(rewriting: Rewriting) -> None:
        rewriting.records[NEWEST]["statistics"][member] = value

    name = f"log: statistics say {value} {member}"
    return attack(name, rewritten(change), "bad_json", rule, level=level, passes=UNREAD)


def _lost(slot: int, passes: frozenset[str] = frozenset()) -> Attack:
    def make(objects: Objects) -> Objects:
        return {key: data for key, data in objects.items() if key != record_key(slot)}

    return attack(f"log: slot {slot} is gone", make, "lost_object no_version", "DS063", passes=passes)


def _common(kind: str, ignorable: bool) -> dict[str, object]:
    return {"kind": kind, "ignorable": ignorable, "label": "x"}


def attacks() -> list[Attack]:
    """All of them."""
    return [
        attack("log: a fork", _forked, "bad_chain", "DS051", passes=WRITER),
        attack("log: two histories", _two_histories, "bad_chain", "DS051", passes=WRITER),
        attack(
            "log: a parent of nobody",
            record_with(NEWEST, parent="0" * 64),
            "bad_chain",
            "DS051",
            passes=WRITER,
        ),
        attack("log: no parent", record_with(NEWEST, parent=None), "bad_json", "DS051 DS013"),
        attack("log: a parent that is no hash", record_with(NEWEST, parent="A" * 64), "bad_json", "DS013"),
        *(_at_the_end(slot) for slot in (1, 2, 4, 6)),
        _swapped(5, 6),
        _swapped(4, 5, WRITER),
        _swapped(2, 6),
        _reordered([0, 1, 2, 3, 4, 6, 5], "bad_chain", "DS054 DS055", UNREAD),
        _reordered([0, 1, 2, 3, 4, 5, 6, 6], "bad_chain", "DS054", UNREAD),
        _reordered([0, 1, 2, 4, 5, 6], "bad_chain", "DS053 DS051", WRITER),
        _reordered([0, 1, 2, 3, 4, 6], "bad_chain", "DS055 DS060", WRITER),
        _reordered([0, 2, 3, 4, 5, 6], "bad_chain", "DS053 DS051", UNREAD - FOLLOWERS),
        attack("log: another slot", record_with(NEWEST, slot=5), "bad_chain", "DS051"),
        attack("log: a slot beyond all", record_with(NEWEST, slot=2**53 - 1), "bad_chain", "DS051"),
        attack("log: an older epoch", record_with(NEWEST, epoch=1), "bad_chain", "DS053", passes=WRITER),
        attack("log: an epoch to come", record_with(NEWEST, epoch=2**53 - 1), "bad_chain", "DS053"),
        attack(
            "log: resumes what is to come",
            record_with(SECOND_EPOCH, resumes=3),
            "bad_chain",
            "DS054 DS051",
            passes=UNREAD - FOLLOWERS,
        ),
        attack(
            "log: resumes nothing",
            record_with(SECOND_EPOCH, resumes=None),
            "bad_chain",
            "DS055 DS051",
            passes=UNREAD - FOLLOWERS,
        ),
        attack("log: its own base", record_with(NEWEST, base=3), "bad_json", "DS060"),
        attack("log: a base above it", record_with(OLDER, base=3), "bad_json", "DS060", passes=WRITER),
        attack(
            "log: a base that is not there",
            record_with(NEWEST, version=9, base=8),
            "bad_chain",
            "DS055 DS060",
            passes=WRITER,
        ),
        attack(
            "log: not the base that was due",
            record_with(NEWEST, base=1),
            "bad_chain bad_digest bad_patch",
            "DS055 DS046 DS036 DS062",
            passes=WRITER,
        ),
        attack(
            "log: a version again",
            record_with(NEWEST, version=2, base=1),
            "bad_chain lost_object",
            "DS054 DS063",
            passes=WRITER,
        ),
        attack("log: a negative version", record_with(NEWEST, version=-1), "bad_json", "DS013"),
        attack(
            "log: another table", record_with(NEWEST, table="0" * 64), "bad_chain lost_object", "DS060 DS063"
        ),
        attack(
            "log: an unknown kind", record_with(NEWEST, **_common("magic", False)), "unknown_kind", "DS052"
        ),
        attack("log: no kind", record_with(NEWEST, kind=None), "unknown_kind", "DS052"),
        attack("log: a kind that is a list", record_with(NEWEST, kind=[[]]), "unknown_kind", "DS052"),
        attack(
            "log: a delta that may be skipped", record_with(NEWEST, ignorable=True), "bad_json", "DS052 DS013"
        ),
        attack(
            "log: a skipped record without a parent",
            record_with(NEWEST, **_common("x", True), parent=None),
            "bad_json",
            "DS051 DS013",
        ),
        attack(
            "log: a skipped record of another epoch",
            record_with(NEWEST, **_common("x", True), epoch=7),
            "bad_chain",
            "DS053",
        ),
        attack("log: ignorable is 1", record_with(NEWEST, kind="x", ignorable=1), "unknown_kind", "DS052"),
        _appended("log: a second birth", "bad_chain bad_json", "DS050 DS013", kind="birth"),
        _appended(
            "log: one version more on the wrong base",
            "bad_chain lost_object",
            "DS055 DS063",
            WRITER,
            version=4,
            base=2,
        ),
        attack("log: slot 0 is no birth", rewritten(_no_birth), "bad_chain", "DS050 DS051"),
        attack(
            "log: another digest",
            record_with(NEWEST, digest="0123456789abcdef"),
            "bad_digest",
            "DS062",
            level=Level.CONTENT,
            passes=WRITER | {"shard", "shard follower"},
        ),
        attack("log: a table of its own", rewritten(_own_table), "bad_chain", "DS060", passes=WRITER),
        _said("elements", 1, "DS064"),
        _said("bytes", 1, "DS064"),
        _said("changed", 2**53 - 1, "DS064"),
        _said("changed", 1, "DS065", Level.DEEP),
        _lost(5, OLD),
        _lost(4, UNREAD),
        _lost(2, OLD),
    ]
