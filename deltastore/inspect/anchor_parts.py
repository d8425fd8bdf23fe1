"""Objects of an anchor beside its inventory: metadata, shards, and the sums of its chunks."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from deltastore.anchors.chunk_sums import SUMS_KEY, split_sums, sums_bytes
from deltastore.anchors.inventory import fetch_inventory, fetch_object
from deltastore.anchors.shard_rules import (
    Sums,
    check_chunk,
    checked_index,
    chunk_offsets,
    index_start,
    shard_index_bytes,
    stored_chunk_bytes,
)
from deltastore.anchors.sharding import ShardGrid
from deltastore.anchors.zarr_metadata import METADATA_KEY, check_group, read_shards
from deltastore.errors import CorruptError, DeltastoreError
from deltastore.format.limits import TABLE_BYTES
from deltastore.format.listed import ListedObject
from deltastore.format.records import AnchorRecord
from deltastore.format.table import Array, TensorTable
from deltastore.inspect.found import Inspection, Wanted
from deltastore.inspect.json_objects import loose_object
from deltastore.inspect.loose_shard import inspect_loose_shard
from deltastore.inspect.source import Source
from deltastore.inspect.surroundings import Surroundings
from deltastore.inspect.verdict import judge, judge_bytes
from deltastore.validate.objects.anchors import Shard
from deltastore.validate.objects.streamed import Named

__all__ = ["inspect_anchor_part"]


async def inspect_anchor_part(source: Source, wanted: Wanted, into: Inspection, around: Surroundings) -> None:
    """Metadata, a shard or the sums, by its key in the anchor, with what record and table say of it."""
    key = into.key or ""
    inner = "/".join(key.split("/")[3:])
    name = inner.rpartition("/")[2]
    into.kind = "anchor metadata" if name == METADATA_KEY else "chunk sums" if inner == SUMS_KEY else "shard"
    manifest = await around.manifest() if key.startswith("anchors/") else None
    table = await around.table(manifest)
    part = _Part(source, wanted, into, inner)
    if isinstance(manifest, AnchorRecord) and table is not None and around.store is not None:
        part.prefix = manifest.anchor.prefix(manifest.version)
        if key.startswith(part.prefix):
            around.named_by(manifest)
            await part.look_up(around, manifest, table)
        else:
            around.unnamed("anchor", manifest)
    await part.judge(around)
    part.left_out()
    if into.kind == "anchor metadata":
        await part.metadata()
    elif into.kind == "shard":
        await part.shard()
    elif into.kind == "chunk sums":
        part.sums()
    if wanted.check or into.kind != "shard":
        into.facts["sha256"] = await source.sha256()


class _Part:
    def __init__(self, source: Source, wanted: Wanted, into: Inspection, inner: str) -> None:
        self._source = source
        self._wanted = wanted
        self._into = into
        self._inner = inner
        self.prefix = ""
        self.table: TensorTable | None = None
        self._version = 0
        self._entry: ListedObject | None = None
        self._array: Array | None = None
        self._grid: ShardGrid | None = None
        self._sums: Sums | None = None
        self._unsummed = True

    async def look_up(self, around: Surroundings, manifest: AnchorRecord, table: TensorTable) -> None:
        """The inventory's entry, and of a shard the metadata of its array and the sums of its chunks."""
        store = around.store
        if store is None:
            return
        into, self.table, self._version = self._into, table, manifest.version
        folder = self._inner.partition("/")[0]
        number = int(folder[6:]) if folder.startswith("array-") and folder[6:].isdigit() else -1
        try:
            entries = await fetch_inventory(store, manifest.version, manifest.anchor)
            self._entry = entries.get(self._inner)
            if self._entry is None:
                message = f"{into.where} is under an anchor whose inventory does not name it"
                into.wrong(CorruptError("bad_anchor", message, where=into.where, rule="DS072"))
            if not 0 <= number < len(table.arrays):
                return
            self._array = table.arrays[number]
            into.facts["array"] = {
                "number": number,
                "pattern": self._array.pattern,
                "dtype": self._array.dtype,
            }
            if into.kind != "shard":
                return
            metadata = f"{folder}/{METADATA_KEY}"
            data = await fetch_object(store, self.prefix, entries[metadata])
            self._grid = read_shards(data, self._array, self.prefix + metadata)
            self._unsummed = SUMS_KEY in entries
            if self._unsummed:
                listed = await fetch_object(store, self.prefix, entries[SUMS_KEY])
                if len(listed) == sums_bytes(table):
                    self._sums, self._unsummed = split_sums(listed, table)[number], False
        except (DeltastoreError, KeyError) as error:
            into.notes.append(f"its anchor cannot be used: {error}")

    async def judge(self, around: Surroundings) -> None:
        """What validation says of it: of a shard no more than its length unless ``check`` is wanted."""
        into, entry, store = self._into, self._entry, around.store
        if entry is None or store is None:
            return
        named = Named(into.where, entry.bytes, entry.sha256, "its inventory", "DS073")
        if into.kind != "shard":
            await judge_bytes(into, named, store)
        elif not self._wanted.check:
            await judge(into, named, None)
        elif self._array is None or self._grid is None or (number := self._number(self._grid)) is None:
            await judge_bytes(into, named, store)
        else:
            shard = Shard(self._array, self._grid, number, self._sums)
            await judge(into, named, partial(shard.check, store, named))

    def left_out(self) -> None:
        """What cannot be checked, for want of what the stream says of it."""
        into, whole = self._into, self._wanted.check or self._into.kind != "shard"
        if self._entry is None and whole:
            into.left_out("its length and hash, which only its anchor's inventory says")
        if into.kind == "shard" and self._grid is None and (whole or self._wanted.chunk is not None):
            into.left_out("which chunks it must have, which only its array's metadata and the table say")
        if into.kind == "shard" and self._unsummed and (whole or self._wanted.chunk is not None):
            into.left_out("the sums of its chunks, which its anchor has beside them")
        if into.kind == "anchor metadata" and self._array is None and self.table is None:
            into.left_out("whether it is what the tensor table asks for")
        if into.kind == "chunk sums" and self.table is None:
            into.left_out("whether every chunk has a sum")

    async def metadata(self) -> None:
        """A ``zarr.json``: what it says, and whether it is what the table asks for."""
        into = self._into
        data = await self._source.read(0, TABLE_BYTES)
        into.facts["fields"] = loose_object(data)
        try:
            if self.table is not None and self._inner == METADATA_KEY:
                check_group(data, self.table, self._version, into.where)
            elif self._array is not None:
                read_shards(data, self._array, into.where)
            elif into.facts["fields"] is None:
                message = f"{into.where} is not JSON"
                raise CorruptError("bad_anchor", message, where=into.where, rule="DS071")
        except CorruptError as error:
            into.wrong(error)

    def sums(self) -> None:
        """How many chunks have a sum, as the table has it."""
        into, table = self._into, self.table
        if table is None:
            return
        into.facts["chunks"] = sums_bytes(table) // 16
        if into.size != sums_bytes(table):
            message = (
                f"{into.where} has {into.size} bytes where the chunks of the table need {sums_bytes(table)}"
            )
            into.wrong(CorruptError("bad_anchor", message, where=into.where, rule="DS074"))

    async def shard(self) -> None:
        """The index of a shard, and the chunks that are asked for."""
        if self._array is None or self._grid is None:
            await inspect_loose_shard(self._source, self._wanted, self._into)
            return
        into, grid, array, where = self._into, self._grid, self._array, self._into.where
        number = self._number(grid)
        if number is None:
            message = f"{where} is no shard of its array"
            into.wrong(CorruptError("bad_anchor", message, where=where, rule="DS072"))
            return
        box = grid.box(number)
        into.facts["shard"] = {
            "number": number,
            "start": list(box.start),
            "size": list(box.size),
            "index_entries": grid.places,
            "chunk_bytes": stored_chunk_bytes(grid, array.element),
        }
        try:
            start = index_start(into.size, grid, array, where)
            index = await self._source.read(start, shard_index_bytes(grid))
            into.facts["shard"]["index_offset"] = start
            checked_index(index, start, array, where)
            chunks, offsets = chunk_offsets(memoryview(index), grid, number, array, where, end=start)
        except CorruptError as error:
            into.wrong(error)
            await inspect_loose_shard(self._source, self._wanted, into)
            return
        await self._chunks(chunks.tolist(), offsets.tolist(), grid, array)

    async def _chunks(self, chunks: list[int], offsets: list[int], grid: ShardGrid, array: Array) -> None:
        """List chunks; check those that are asked for."""
        size, sound = stored_chunk_bytes(grid, array.element), 0
        listed: list[dict[str, Any]] = []
        for chunk, offset in zip(chunks, offsets, strict=True):
            asked = self._wanted.chunk in (None, chunk)
            if self._wanted.check or (asked and self._wanted.chunk is not None):
                try:
                    data = await self._source.read(offset, size)
                    await asyncio.to_thread(
                        check_chunk, data, chunk, offset, array, self._into.where, self._sums
                    )
                    sound += 1
                except CorruptError as error:
                    self._into.wrong(error)
            if asked and len(listed) < self._wanted.limit:
                box = array.grid.box(chunk)
                names = array.names[box.start[0] : box.start[0] + box.size[0]]
                listed.append(
                    {
                        "chunk": chunk,
                        "offset": offset,
                        "bytes": size,
                        "tensors": list(dict.fromkeys((names[0], names[-1]))),
                        "start": list(box.start[1:]),
                        "size": list(box.size[1:]),
                    }
                )
        self._into.facts["chunks"] = len(chunks)
        self._into.facts["entries"] = listed
        if self._wanted.check or self._wanted.chunk is not None:
            self._into.facts["sound_chunks"] = sound

    def _number(self, grid: ShardGrid) -> int | None:
        """The shard that the key names."""
        coordinates = self._inner.split("/")[2:]
        counts: Any = grid.shards.counts
        if len(coordinates) != len(counts) or not all(part.isdigit() for part in coordinates):
            return None
        number = 0
        for text, count in zip(coordinates, counts, strict=True):
            if int(text) >= count or str(int(text)) != text:
                return None
            number = number * count + int(text)
        return number
