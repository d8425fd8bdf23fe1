"""Packs and patches with every hash right: what they claim, where they reach, whose they are."""

from __future__ import annotations

import struct
from collections.abc import Callable

from deltastore.format.dtypes import DTYPES
from deltastore.validate import Level
from tests.format import naive
from tests.kernels.forging import ForgedRun, runs_patch

from .attack import WRITER, Attack, attack, rewritten
from .packs import Row, joined, patches_of, rows_of
from .resealing import Rewriting
from .victim import built

NEWEST, OLDER = 6, 5
RANGES = frozenset({"export", "replay"})
"""Who takes from an object only the bytes that are named."""

NOBODY: frozenset[str] = frozenset()
INDEX = "DS040 DS041 DS042 DS043 DS061 DS100"


def of_pack(
    name: str,
    change: Callable[[bytes], bytes],
    codes: str,
    rules: str,
    *,
    truthful: bool = True,
    passes: frozenset[str] = WRITER,
    level: Level = Level.CONTENT,
) -> Attack:
    """The first pack of the newest version, replaced by another with all hashes right."""

    def make(rewriting: Rewriting) -> None:
        rewriting.replace_pack(NEWEST, 0, change(rewriting.pack(NEWEST, 0)), truthful=truthful)
        _modest(rewriting)

    return attack(f"pack: {name}", rewritten(make), codes, rules, passes=passes, level=level)


def _modest(rewriting: Rewriting) -> None:
    """A manifest that says no more than what its packs write."""
    record = rewriting.records[NEWEST]
    written = sum(pack["count"] for pack in record["packs"])
    record["statistics"]["changed"] = min(record["statistics"]["changed"], written)


def _poked(at: int, value: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + value + data[at + len(value) :]


def _row(number: int, field: int, value: int) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        size = 8 if field == 5 else 4
        at = 64 + 44 * number + 4 * field
        return data[:at] + value.to_bytes(size, "little") + data[at + size :]

    return change


def _rows(change: Callable[[list[Row], list[bytes]], None]) -> Callable[[bytes], bytes]:
    def changed(data: bytes) -> bytes:
        rows, patches = rows_of(data), patches_of(data)
        change(rows, patches)
        return joined(data[:64], rows, patches)

    return changed


def _swap_patches(rows: list[Row], patches: list[bytes]) -> None:
    patches[0], patches[1] = patches[1], patches[0]
    rows[0][3], rows[1][3] = rows[1][3], rows[0][3]


def _swap_rows(rows: list[Row], patches: list[bytes]) -> None:
    patches[0], patches[1] = patches[1], patches[0]
    rows[0], rows[1] = rows[1], rows[0]


def _same_place(rows: list[Row], patches: list[bytes]) -> None:
    rows[1][0], rows[1][1] = rows[0][0], rows[0][1]


def _other_version(rewriting: Rewriting) -> None:
    rewriting.replace_pack(NEWEST, 0, rewriting.pack(OLDER, 0))
    _modest(rewriting)


def _other_version_renamed(rewriting: Rewriting) -> None:
    data = rewriting.pack(OLDER, 0)
    rewriting.replace_pack(NEWEST, 0, data[:16] + (3).to_bytes(8, "little") + data[24:])
    _modest(rewriting)


def change_entry(rewriting: Rewriting, **members: object) -> None:
    rewriting.records[NEWEST]["packs"][0].update(members)
    total = sum(pack["bytes"] for pack in rewriting.records[NEWEST]["packs"])
    rewriting.records[NEWEST]["statistics"]["bytes"] = total


def _twice(rewriting: Rewriting) -> None:
    packs = rewriting.records[NEWEST]["packs"]
    packs.append(dict(packs[0]))
    change_entry(rewriting)


def _left_out(rewriting: Rewriting) -> None:
    """The last pack is not listed any more."""
    del rewriting.records[NEWEST]["packs"][-1]
    _modest(rewriting)
    change_entry(rewriting)


def _twice_written(rewriting: Rewriting) -> None:
    """A second pack writes an element of the first one again, the same value; all digests stay right."""
    record, target = rewriting.records[NEWEST], built()
    value = naive.to_ordered(int(target.history[target.newest]["norm"][3]), DTYPES["BF16"])
    first = rewriting.pack(NEWEST, 0)
    rows = rows_of(first)[:1]
    rows[0][3], rows[0][5] = 1, 0
    patch = runs_patch(64, [ForgedRun(16, 0, [3], [value])])
    data = joined(first[:64], rows, [patch])
    record["packs"].append(dict(record["packs"][0]))
    rewriting.replace_pack(NEWEST, len(record["packs"]) - 1, data)
    record["packs"][-1]["slabs"] = [0, 0]


def attacks() -> list[Attack]:
    """All of them."""
    huge = struct.pack("<Q", 1 << 60)
    last = (1 << 32) - 1
    return [
        of_pack("magic", _poked(0, b"\x00"), "bad_index", "DS040"),
        of_pack("format 0", _poked(8, b"\0\0"), "bad_index", "DS040"),
        of_pack("format 2", _poked(8, b"\2\0"), "newer_format", "DS012 DS040"),
        of_pack("flags", _poked(10, b"\1"), "bad_index", "DS040"),
        of_pack("reserved", _poked(63, b"\1"), "bad_index", "DS040"),
        of_pack(
            "4 million rows",
            _poked(12, struct.pack("<I", 1 << 22)),
            "bad_index bad_hash bad_json",
            INDEX + " DS013",
            truthful=False,
        ),
        of_pack(
            "more rows than any", _poked(12, struct.pack("<I", last)), "bad_index", INDEX, truthful=False
        ),
        of_pack("no rows", _poked(12, bytes(4)), "bad_index", INDEX, truthful=False),
        of_pack("patches of 2^60 bytes", _poked(40, huge), "bad_index", INDEX),
        of_pack("another version in it", _poked(16, struct.pack("<Q", 7)), "bad_index", "DS061"),
        of_pack("an array beyond the table", _row(0, 0, last), "bad_index", INDEX),
        of_pack("a chunk beyond the array", _row(0, 1, last), "bad_index", INDEX),
        of_pack("a patch of 4 GiB", _row(0, 2, last - 3), "bad_index", INDEX),
        of_pack("a patch of no bytes", _row(0, 2, 0), "bad_index", INDEX),
        of_pack("a patch of odd bytes", _row(0, 2, 13), "bad_index", INDEX),
        of_pack("4 billion elements", _row(0, 3, last), "bad_index", INDEX),
        of_pack("no elements", _row(0, 3, 0), "bad_index", INDEX),
        of_pack("an unknown encoding", _row(0, 4, 2), "bad_index", INDEX),
        of_pack("raw that is none", _row(0, 4, 1), "bad_index", INDEX),
        of_pack("another difference", _row(0, 5, 12345), "bad_digest", "DS046 DS062"),
        of_pack("another hash of a patch", _poked(64 + 30, b"\0\0"), "bad_hash", "DS044"),
        of_pack(
            "two patches swapped",
            _rows(_swap_patches),
            "bad_index bad_digest bad_patch",
            INDEX + " DS046 DS036 DS032 DS030 DS031 DS034 DS044",
            level=Level.DEEP,
        ),
        of_pack("two rows swapped", _rows(_swap_rows), "bad_index", "DS042 DS061"),
        of_pack("two rows of one chunk", _rows(_same_place), "bad_index", INDEX),
        of_pack("one byte more", lambda data: data + b"\0", "bad_index", INDEX),
        of_pack("four bytes less", lambda data: data[:-4], "bad_index", INDEX),
        of_pack(
            "a header alone",
            lambda data: data[:64],
            "bad_json",
            "DS013",
            passes=NOBODY,
            level=Level.STRUCTURE,
        ),
        of_pack(
            "nothing of a pack",
            lambda _: bytes(108),
            "bad_json",
            "DS013",
            truthful=False,
            passes=NOBODY,
            level=Level.STRUCTURE,
        ),
        attack(
            "pack: of another version",
            rewritten(_other_version),
            "bad_index",
            "DS061",
            level=Level.CONTENT,
            passes=WRITER,
        ),
        attack(
            "pack: of another version, renumbered",
            rewritten(_other_version_renamed),
            "bad_digest bad_patch bad_index",
            "DS046 DS036 DS062 DS061 DS045",
            level=Level.CONTENT,
            passes=WRITER,
        ),
        attack(
            "packs: one twice",
            rewritten(_twice),
            "bad_patch bad_digest",
            "DS045 DS046 DS062",
            level=Level.CONTENT,
            passes=WRITER,
        ),
        attack(
            "packs: one left out",
            rewritten(_left_out),
            "bad_digest",
            "DS062",
            level=Level.CONTENT,
            passes=WRITER | {"shard", "shard follower"},
        ),
        attack(
            "packs: an element in two, with the same value",
            rewritten(_twice_written),
            "bad_patch bad_digest",
            "DS045 DS046",
            level=Level.CONTENT,
            passes=WRITER,
        ),
    ]
