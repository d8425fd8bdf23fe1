"""Every requirement of SPEC.md as a named check: where it stands, what it means, and who can judge it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

__all__ = ["CHECKS", "Check", "Conduct", "Level"]


class Level(IntEnum):
    """How far a validation goes; each level includes those before it."""

    STRUCTURE = 1
    """The log, tables and inventories, and whether all objects are there in their lengths; no weights."""
    CONTENT = 2
    """Every byte against its hash, every index, patch and shard against its rules."""
    DEEP = 3
    """Weights are replayed from anchors, and digests computed from them."""


class Conduct(StrEnum):
    """Whose behaviour a requirement is about that stored bytes cannot show; tests prove these."""

    STORE = "store"
    WRITER = "writer"
    READER = "reader"
    EXCHANGE = "exchange"
    """Objects that several writers exchange, and layouts: no part of a stream."""


@dataclass(frozen=True, slots=True)
class Check:
    """One requirement. ``section`` is that of SPEC.md that states it, ``meaning`` one line for people.

    ``judged`` is the level from which on a validation judges it, or whose conduct it is about.
    """

    id: str
    section: str
    judged: Level | Conduct
    meaning: str


_STATED: Final = (
    ("DS001", "3", Level.STRUCTURE, "keys are segments of the allowed characters and lengths"),
    ("DS002", "3", Conduct.STORE, "a write is seen whole or not at all, and is durable when it returns"),
    ("DS003", "3", Conduct.STORE, "of racing creations of one key exactly one succeeds"),
    ("DS004", "3", Conduct.STORE, "reads fail before they allocate more than their limit"),
    ("DS005", "4", Conduct.WRITER, "what a record names is durable before the record is created"),
    ("DS006", "4", Conduct.WRITER, "what a record names is never changed"),
    ("DS010", "5", Level.STRUCTURE, "JSON objects are stored in canonical form"),
    ("DS011", "5", Level.STRUCTURE, "JSON objects carry their own sha256"),
    ("DS012", "5", Level.STRUCTURE, "no object is of a newer format"),
    ("DS013", "5", Level.STRUCTURE, "JSON objects have exactly the members of their schema"),
    ("DS020", "7.1", Level.STRUCTURE, "members ascend, in the boxes of the procedure"),
    ("DS021", "7.1", Level.STRUCTURE, "arrays are sorted, and no tensor is listed twice"),
    ("DS022", "7.1", Level.STRUCTURE, "tensors of one pattern, type and shape are one array"),
    ("DS023", "7.1", Level.STRUCTURE, "names, axes and totals of a table are within their limits"),
    ("DS024", "7.2", Level.STRUCTURE, "chunks have at most 2^20 elements"),
    ("DS025", "7.3", Level.STRUCTURE, "slab rules name what the table and the array have"),
    ("DS030", "9", Level.CONTENT, "unused bits of a section are zero"),
    ("DS031", "9.1", Level.CONTENT, "widths of runs ascend, and header fields are in range"),
    ("DS032", "9.1", Level.CONTENT, "positions ascend below the chunk's size, as many as the header says"),
    ("DS033", "9.1", Level.CONTENT, "no position is in two runs"),
    ("DS034", "9.1", Level.CONTENT, "a patch ends exactly after its last section"),
    ("DS035", "9.2", Conduct.WRITER, "the width of a run holds every step"),
    ("DS036", "9.2", Level.DEEP, "patches fit the weights of their base"),
    ("DS040", "10", Level.CONTENT, "magic, flags, row number and lengths of a pack add up"),
    ("DS041", "10", Level.CONTENT, "index rows name chunks, lengths, counts and encodings that exist"),
    ("DS042", "10", Level.CONTENT, "index rows ascend by slab, array and chunk"),
    ("DS043", "10", Level.CONTENT, "patches are as long as their encoding and chunk allow"),
    ("DS044", "10", Level.CONTENT, "patches have the hash and the count of their rows"),
    ("DS045", "10", Level.CONTENT, "no element is in two packs of a version"),
    ("DS046", "10", Level.DEEP, "patches change the digest by what their rows say"),
    ("DS050", "11", Level.STRUCTURE, "slot 0, and no other, is a birth record"),
    ("DS051", "11", Level.STRUCTURE, "records name their own slot and the record before it"),
    ("DS052", "11", Level.STRUCTURE, "records of unknown kinds may be skipped"),
    ("DS053", "11", Level.STRUCTURE, "epochs count up by one"),
    ("DS054", "11", Level.STRUCTURE, "versions ascend, and epochs resume versions that are there"),
    ("DS055", "11", Level.STRUCTURE, "deltas build on the version their epoch is at"),
    ("DS060", "12", Level.STRUCTURE, "the base of a delta is below it, there, and of the same table"),
    (
        "DS061",
        "12",
        Level.CONTENT,
        "packs have the size, hashes, version, rows, count, slabs of their entry",
    ),
    ("DS062", "12", Level.CONTENT, "digest differences lead from the base's digest to the version's"),
    ("DS063", "12", Level.STRUCTURE, "what a record names is there"),
    ("DS064", "12", Level.STRUCTURE, "statistics agree with the table and the packs"),
    ("DS065", "12", Level.DEEP, "no more elements differ from the base than the manifest says"),
    ("DS070", "13", Level.CONTENT, "every chunk of an anchor is stored"),
    ("DS071", "13", Level.CONTENT, "an anchor's metadata and shards are as the table says"),
    ("DS072", "13", Level.STRUCTURE, "the inventory is the record's, and names exactly the anchor's objects"),
    (
        "DS073",
        "13",
        Level.CONTENT,
        "an anchor's objects have the inventory's hashes, and good checksums",
    ),
    ("DS074", "13", Level.CONTENT, "the sums of an anchor are those of its chunks"),
    ("DS080", "14.1", Conduct.WRITER, "nothing is committed after a newer epoch's record"),
    ("DS081", "14.1", Conduct.WRITER, "an epoch is used only by whoever began or joined it"),
    ("DS082", "14.2", Conduct.WRITER, "a lost slot is read before the next one is tried"),
    ("DS083", "14.2", Conduct.WRITER, "an unknown outcome is read back before anything else is done"),
    ("DS084", "14.2", Conduct.WRITER, "what was published is remembered only once it is committed"),
    ("DS085", "14.3", Conduct.EXCHANGE, "every element is published by exactly one writer of an epoch"),
    ("DS086", "14.3", Conduct.EXCHANGE, "only votes that agree with the attempt count"),
    ("DS087", "14.3", Conduct.EXCHANGE, "only the coordinator ends an attempt"),
    ("DS088", "14.3", Conduct.EXCHANGE, "a writer that has voted takes the outcome from the log"),
    ("DS089", "14.4", Conduct.WRITER, "every element that may have changed is published"),
    ("DS090", "15.1", Conduct.READER, "a delta is checked whole before its first element is written"),
    ("DS091", "15.1", Conduct.READER, "a delta is applied to weights of its base only"),
    ("DS092", "15.1", Conduct.READER, "a version is reported only once memory holds it"),
    ("DS093", "15.1", Level.DEEP, "the weights of an anchor have the digest of its manifest"),
    ("DS094", "15.1", Conduct.READER, "a reader of a part checks indexes and patches before it uses them"),
    ("DS095", "15.1", Conduct.READER, "a reader of a part keeps digests of what it holds"),
    ("DS100", "16", Level.STRUCTURE, "nothing exceeds its limit"),
    ("DS110", "21", Conduct.EXCHANGE, "every element of a parameter is in one piece or one hole"),
    ("DS111", "21", Conduct.EXCHANGE, "pieces lie in their tensor and their parameter"),
    ("DS112", "21", Conduct.READER, "a layout is compared with the table before weights are fetched"),
)

CHECKS: Final[dict[str, Check]] = {stated[0]: Check(*stated) for stated in _STATED}
"""By identifier, in the order of SPEC.md."""
