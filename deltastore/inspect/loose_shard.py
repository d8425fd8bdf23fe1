"""A shard by its own bytes: what its index and its checksums tell without anchor and table."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import google_crc32c
import numpy as np

from deltastore.errors import CorruptError
from deltastore.inspect.found import Inspection, Wanted
from deltastore.inspect.source import Source

__all__ = ["inspect_loose_shard", "looks_like_shard"]

_ENTRY: Final = np.dtype([("offset", "<u8"), ("length", "<u8")])
_CRC: Final = 4
_ABSENT: Final = (1 << 64) - 1
_MOST_ENTRIES: Final = 1 << 14
_MOST_CHUNK: Final = (8 << 20) + _CRC
"""2**20 elements of 8 bytes, and the checksum: no chunk of an anchor is longer."""

Entries = np.ndarray[Any, Any]


async def looks_like_shard(source: Source) -> int | None:
    """How many entries the index at the object's end has, if it is one whose first chunk comes first."""
    length = min(source.size, _MOST_ENTRIES * _ENTRY.itemsize + _CRC)
    tail = await source.read(source.size - length, length)
    if len(tail) < _ENTRY.itemsize + _CRC:
        return None
    wanted = int.from_bytes(tail[-_CRC:], "little")
    pairs = np.frombuffer(tail[(len(tail) - _CRC) % _ENTRY.itemsize : -_CRC], _ENTRY)
    for place in np.flatnonzero(pairs["offset"] == 0)[::-1].tolist():
        entries = len(pairs) - place
        if google_crc32c.value(tail[-_CRC - entries * _ENTRY.itemsize : -_CRC]) == wanted:
            return int(entries)
    return None


async def inspect_loose_shard(source: Source, wanted: Wanted, into: Inspection) -> None:
    """List the index of a shard; with ``check`` every chunk is compared with its own checksum."""
    if wanted.chunk is not None:
        into.left_out(f"chunk {wanted.chunk}: which one that is, only its anchor says")
    count = await looks_like_shard(source)
    if count is None:
        into.notes.append("its end is no index with its checksum")
        if wanted.check:
            into.left_out("its chunks: only its index says where they are")
        return
    start = source.size - count * _ENTRY.itemsize - _CRC
    entries = np.frombuffer(await source.read(start, count * _ENTRY.itemsize), _ENTRY)
    there = (entries["offset"] != _ABSENT) | (entries["length"] != _ABSENT)
    into.facts["index"] = {"offset": start, "entries": count}
    into.facts["chunks"] = int(there.sum())
    listed = enumerate(entries[: wanted.limit].tolist())
    into.facts["entries"] = [
        {"place": place, "offset": offset, "bytes": length} for place, (offset, length) in listed
    ]
    good = _inside(entries, there, start, into)
    if wanted.check:
        into.facts["sound_chunks"] = await _checked(source, entries, good, into)


def _inside(entries: Entries, there: Entries, start: int, into: Inspection) -> list[int]:
    """The places of chunks that are inside the object, each by itself; of others, what is wrong."""
    good: list[int] = []
    end = 0
    places = np.flatnonzero(there)
    for place in places[np.argsort(entries["offset"][places], kind="stable")].tolist():
        offset, length = (int(entries[name][place]) for name in ("offset", "length"))
        at = start + place * _ENTRY.itemsize
        if not _CRC < length <= _MOST_CHUNK or offset + length > start:
            _wrong(into, "DS071", f"the chunk at place {place} is no chunk inside the object", at)
        elif offset < end:
            _wrong(into, "DS071", f"the chunk at place {place} shares bytes with another", at)
        else:
            good.append(place)
            end = offset + length
    return good


async def _checked(source: Source, entries: Entries, places: list[int], into: Inspection) -> int:
    """How many chunks have their checksum."""
    sound = 0
    for place in places:
        offset, length = (int(entries[name][place]) for name in ("offset", "length"))
        data = await source.read(offset, length)
        found = await asyncio.to_thread(google_crc32c.value, data[:-_CRC])
        if len(data) == length and found == int.from_bytes(data[-_CRC:], "little"):
            sound += 1
        else:
            _wrong(into, "DS073", f"the chunk at place {place} does not have its checksum", offset)
    return sound


def _wrong(into: Inspection, rule: str, problem: str, offset: int) -> None:
    message = f"{into.where}: {problem}"
    into.wrong(CorruptError("bad_anchor", message, where=into.where, rule=rule, offset=offset))
