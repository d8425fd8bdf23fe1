"""A pack: its header, its index, and the patches that are asked for. Never all of it at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import CorruptError, DeltastoreError, InputError
from deltastore.format.digest import digest_text
from deltastore.format.index_rules import HEADER_BYTES, IndexRules
from deltastore.format.limits import ROWS_PER_PACK
from deltastore.format.pack import PackHeader, header_fields, index_bytes, pack_key
from deltastore.format.patch import Encoding
from deltastore.format.records import DeltaRecord, PackRef
from deltastore.format.table import Array, TensorTable
from deltastore.inspect.found import Inspection, Wanted
from deltastore.inspect.pack_rows import array_numbers, array_of, row_facts
from deltastore.inspect.patches import EntropyReport, decoded_patch, patch_facts
from deltastore.inspect.source import Source
from deltastore.inspect.surroundings import Surroundings
from deltastore.inspect.verdict import judge, judge_bytes
from deltastore.kernels.rows import ROW, Rows
from deltastore.validate.objects.packs import BLOCK_ROWS, IndexCheck, block_ends, check_pack
from deltastore.validate.objects.streamed import Named

__all__ = ["inspect_pack"]

_PATCH_BYTES: Final = 32 << 20
"""No patch of a chunk of 2**20 elements is longer than 16 MiB and a little."""


async def inspect_pack(source: Source, wanted: Wanted, into: Inspection, around: Surroundings) -> None:
    """Read header and index, block by block, list the rows that are wanted, and look into their patches."""
    into.kind = "pack"
    look = _PackLook(source, wanted, into, around)
    await look.name()
    sound = await look.judge()
    await look.header()
    await look.index()
    if wanted.rows:
        await look.patches()
    if wanted.check:
        await look.check(sound=sound)
    if wanted.entropy:
        await look.entropy()


class _PackLook:
    """``sound`` until something is wrong with header or index."""

    def __init__(self, source: Source, wanted: Wanted, into: Inspection, around: Surroundings) -> None:
        self._source = source
        self._wanted = wanted
        self._into = into
        self._around = around
        self._rows = 0
        self._body = 0
        self._manifest: DeltaRecord | None = None
        self._entry: PackRef | None = None
        self._table: TensorTable | None = None
        self._sound = True

    async def name(self) -> None:
        """The record that names the pack, and its table."""
        into = self._into
        if into.key is None or not into.key.startswith("packs/"):
            into.notes.append("its place is none of a stream: arrays are numbers only")
            return
        manifest = await self._around.manifest()
        self._table = await self._around.table(manifest)
        if manifest is None:
            return
        packs = manifest.packs if isinstance(manifest, DeltaRecord) else ()
        entry = next((pack for pack in packs if pack_key(manifest.version, pack.sha256) == into.key), None)
        if entry is None or not isinstance(manifest, DeltaRecord):
            self._around.unnamed("pack", manifest)
            return
        self._around.named_by(manifest)
        self._manifest, self._entry = manifest, entry

    async def judge(self) -> bool:
        """What validation says of it: of all of it with ``check``, else of length and index.

        Whether all of it was judged, and is sound.
        """
        store, entry, manifest, table = self._around.store, self._entry, self._manifest, self._table
        if entry is None or manifest is None or store is None:
            return False
        version, check = manifest.version, self._wanted.check
        named = Named(self._into.where, entry.bytes, entry.sha256, f"version {version}", "DS061")
        if table is None:
            await (judge_bytes(self._into, named, store) if check else judge(self._into, named, None))
            return False
        if check:
            return await judge(self._into, named, partial(check_pack, store, version, entry, table))
        index = IndexCheck(version, entry, table, named.key)
        await judge(self._into, named, partial(self._judge_index, index, entry.rows))
        return False

    async def _judge_index(self, index: IndexCheck, rows: int) -> None:
        start = 0
        for end in block_ends(rows, BLOCK_ROWS):
            data = await self._source.read(start, end - start)
            await asyncio.to_thread(index.look, memoryview(data), start)
            start = end

    async def header(self) -> None:
        """The header, whatever it says."""
        into, where = self._into, self._into.where
        front = await self._source.read(0, HEADER_BYTES)
        try:
            PackHeader.parse(front, where)
        except DeltastoreError as error:
            self._wrong(error)
        if len(front) < HEADER_BYTES:
            return
        fields = into.facts["header"] = header_fields(front)
        rows, self._body = fields["rows"], fields["patch_bytes"]
        self._rows = min(rows, ROWS_PER_PACK, (into.size - HEADER_BYTES) // ROW.itemsize)
        if rows and index_bytes(rows) + self._body != into.size:
            message = f"{where} has {into.size} bytes, its header says {index_bytes(rows) + self._body}"
            self._wrong(CorruptError("bad_index", message, where=where, rule="DS040", offset=40))

    async def index(self) -> None:
        """All rows, in blocks: what they add up to, which rules they break, and those that are wanted."""
        into = self._into
        rules = None if self._table is None else IndexRules(self._table, into.where, self._rows, self._body)
        totals: Counter[str] = Counter()
        listed: list[dict[str, Any]] = []
        async for first, starts, rows in self._blocks():
            totals["difference"] += int(rows["difference"].sum(dtype=np.uint64))
            totals["count"] += int(rows["count"].sum(dtype=np.uint64))
            totals["bytes"] += int(rows["length"].sum(dtype=np.uint64))
            totals["raw"] += int(np.count_nonzero(rows["encoding"] == Encoding.RAW))
            if rules is not None and self._sound:
                await asyncio.to_thread(self._judge_rows, rules, rows)
            chosen = self._chosen(rows, first)
            totals["matching"] += len(chosen)
            for place in chosen[: max(self._wanted.limit - len(listed), 0)].tolist():
                listed.append(row_facts(self._table, rows[place], first + place, int(starts[place])))
        into.facts["index"] = {
            "rows": self._rows,
            "written": totals["count"],
            "raw": totals["raw"],
            "patch_bytes": totals["bytes"],
            "difference": digest_text(totals["difference"]),
            "matching": totals["matching"],
        }
        into.facts["rows"] = listed
        if self._table is None and totals["bytes"] != self._body and "header" in into.facts:
            where = into.where
            message = f"{where}: the patch lengths add up to {totals['bytes']}, the header says {self._body}"
            self._wrong(CorruptError("bad_index", message, where=where, rule="DS040", offset=40))

    def _judge_rows(self, rules: IndexRules, rows: Rows) -> None:
        try:
            rules.add(rows)
        except CorruptError as error:
            self._wrong(error)
            self._sound = False

    async def patches(self) -> None:
        """The patches of the rows that are wanted."""
        found = []
        if self._table is None:
            self._into.left_out("patches beyond their hashes, for want of the tensor table")
        for number in self._wanted.rows:
            if not 0 <= number < self._rows:
                message = f"there is no row {number}: {self._into.where} has {self._rows}"
                raise InputError("bad_argument", message, where=self._into.where)
        async for number, start, row in self._some():
            data = await self._patch(row, start)
            facts = patch_facts(row, start, data, self._array(row), octets=self._wanted.octets)
            found.append({**row_facts(self._table, row, number, start), **facts})
            await self._decoded(row, start, data)
        self._into.facts["patches"] = found

    async def check(self, *, sound: bool) -> None:
        """The hash of all bytes and, unless the pack is known to be ``sound``, what is wrong with patches."""
        into = self._into
        found = into.facts["sha256"] = await self._source.sha256()
        if self._entry is None and into.key is not None and found not in into.key:
            message = f"{into.where} is not the pack that its name says: its sha256 is {found}"
            self._wrong(CorruptError("bad_hash", message, where=into.where, rule="DS061"))
        if self._entry is None:
            into.left_out("what its manifest says of it: its length, rows, and hashes")
        if self._table is None:
            into.left_out("its rows and patches beyond their hashes, for want of the tensor table")
        count = self._rows if sound else 0
        async for _, starts, rows in self._blocks():
            for place in range(0 if sound else len(rows)):
                row, at = rows[place], int(starts[place])
                count += await self._decoded(row, at, await self._patch(row, at)) is not False
        into.facts["hashed_patches" if self._table is None else "sound_patches"] = count

    async def entropy(self) -> None:
        """The rows that are wanted, beside their bounds."""
        report = EntropyReport()
        weights = await self._around.base_weights(self._manifest)
        if self._table is None:
            self._into.notes.append("without its table nothing can be said of the entropy of its patches")
            return
        if weights is None:
            self._into.notes.append("how far elements moved is not known without the weights of the base")
        async for _, start, row in self._some():
            data = await self._patch(row, start)
            decoded, array = await self._decoded(row, start, data), self._array(row)
            if array is None or decoded is None or isinstance(decoded, bool):
                continue
            base = None if weights is None else await weights.read(int(row["array"]), int(row["chunk"]))
            await asyncio.to_thread(report.add, row, data, array, decoded, base)
        self._into.facts["entropy"] = report.as_json()

    async def _decoded(self, row: Any, start: int, data: bytes) -> Any:
        """The patch; None where it cannot be judged, and False where it is bad, which is then noted."""
        array, where = self._array(row), self._into.where
        try:
            return await asyncio.to_thread(decoded_patch, row, start, data, array, where)
        except CorruptError as error:
            self._wrong(error)
            return False

    async def _patch(self, row: Any, start: int) -> bytes:
        return await self._source.read(start, min(int(row["length"]), _PATCH_BYTES))

    async def _some(self) -> AsyncIterator[tuple[int, int, Any]]:
        """(number, start, row) of the rows that the selectors choose."""
        async for first, starts, rows in self._blocks():
            for place in self._chosen(rows, first).tolist():
                yield first + place, int(starts[place]), rows[place]

    async def _blocks(self) -> AsyncIterator[tuple[int, NDArray[np.int64], Rows]]:
        """(first row, starts of its patches, rows) of the whole index."""
        start = index_bytes(self._rows)
        for first in range(0, self._rows, BLOCK_ROWS):
            count = min(BLOCK_ROWS, self._rows - first)
            data = await self._source.read(index_bytes(first), count * ROW.itemsize)
            rows = np.frombuffer(data, ROW, len(data) // ROW.itemsize)
            ends = start + np.cumsum(rows["length"].astype(np.int64))
            yield first, ends - rows["length"], rows
            start = int(ends[-1]) if len(ends) else start

    def _chosen(self, rows: Rows, first: int) -> NDArray[np.int64]:
        """Which of these rows the selectors choose."""
        wanted = np.ones(len(rows), np.bool_)
        if self._wanted.rows:
            wanted &= np.isin(first + np.arange(len(rows)), self._wanted.rows)
        if self._wanted.array is not None:
            wanted &= np.isin(rows["array"], array_numbers(self._table, self._wanted.array))
        if self._wanted.chunk is not None:
            wanted &= rows["chunk"] == self._wanted.chunk
        return np.flatnonzero(wanted)

    def _array(self, row: Any) -> Array | None:
        return array_of(self._table, row)

    def _wrong(self, error: DeltastoreError) -> None:
        """Note a problem; that the header has another length than what follows it, is one."""
        place = error.rule, error.offset
        if place != ("DS040", 40) or all((one.rule, one.offset) != place for one in self._into.problems):
            self._into.wrong(error)
