"""Chunks that several packs of a version patch: no element may be in two of them (DS045).

Packs of one writer follow one another, so that nothing is read again. Where the rows of several reach over
the same range, their indexes are read again, their rows sorted by chunk, and the patches of those chunks that
come twice are read again too. Time grows as the rows do, however many packs there are.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, closing
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from deltastore.anchors.in_order import in_order
from deltastore.errors import CorruptError
from deltastore.format.index_rules import IndexRules
from deltastore.format.pack import HEADER_BYTES, index_bytes, patch_check
from deltastore.format.patch import decode_patch
from deltastore.format.table import TensorTable
from deltastore.kernels.rows import ROW, chunks_of
from deltastore.stores.base import Store
from deltastore.stores.named import fetch_range
from deltastore.validate.objects.packs import CheckedPack
from deltastore.validate.objects.spooled import PLACED, RUN_ROWS, SpooledRows
from deltastore.windows.ahead import by_weight
from deltastore.windows.sharing import reaching_over

__all__ = ["SHARED_MEMORY", "check_shared"]

SHARED_MEMORY: Final = 36 << 20
"""Bytes that a check takes, about."""

_BLOCK_ROWS: Final = 1 << 13
_BLOCKS: Final = 8
"""Rows of an index that are one request, and requests on their way."""

_BATCH_BYTES: Final = 4 << 20
_BATCH_ELEMENTS: Final = 1 << 25
"""Shared chunks that are looked at together: about so many bytes of patches, and elements, a bit for each."""

_GAP_BYTES: Final = 64 << 10
_RANGE_BYTES: Final = 1 << 20
_RANGES: Final = 8
"""Patches this close are one range of about so many bytes, and so many of those are on their way."""

_SLAB, _ARRAY = 48, 32
"""How far to the left slab and array stand in a key; a table of 4 MiB has less than 2**16 arrays."""

PlacedRows = np.ndarray[Any, Any]


async def check_shared(
    store: Store,
    version: int,
    where: str,
    table: TensorTable,
    packs: Sequence[CheckedPack],
    *,
    run: int = RUN_ROWS,
) -> None:
    """``CorruptError("bad_patch")``, DS045, where two of ``packs``, which are good, write one element.

    ``where`` is the version's record. Takes about ``SHARED_MEMORY``, and above ``run`` rows of packs that
    reach over one another a temporary file of 44 bytes for each of their rows.
    """
    for group in reaching_over([(pack.first, pack.last) for pack in packs]):
        await _Sharing(store, version, where, table, [packs[number] for number in group], run).check()


@dataclass(frozen=True, slots=True)
class _Block:
    """Some rows of a pack."""

    pack: int
    first: int
    count: int


class _Sharing:
    """Packs of a version that reach over one another."""

    def __init__(
        self,
        store: Store,
        version: int,
        where: str,
        table: TensorTable,
        packs: Sequence[CheckedPack],
        run: int,
    ) -> None:
        self._store = store
        self._named_by = f"version {version}"
        self._where = where
        self._table = table
        self._packs = packs
        self._run = run
        self._block = min(_BLOCK_ROWS, run)
        self._rules = IndexRules(table, "", 0, 0)
        self._offset = 0

    async def check(self) -> None:
        with closing(SpooledRows(sum(pack.rows for pack in self._packs), run=self._run)) as rows:
            async with aclosing(in_order(self._blocks(), self._fetch_block, ahead=_BLOCKS)) as blocks:
                async for block, octets in blocks:
                    await asyncio.to_thread(self._take, block, octets, rows)
            parts = rows.parts()
            while (part := await asyncio.to_thread(next, parts, None)) is not None:
                for shared in _batches(await asyncio.to_thread(_several, part), self._table):
                    await self._check_batch(shared)

    # Indexes ----------------------------------------------------------------------------------------------

    def _blocks(self) -> Iterator[_Block]:
        for number, pack in enumerate(self._packs):
            for first in range(0, pack.rows, self._block):
                yield _Block(number, first, min(self._block, pack.rows - first))

    async def _fetch_block(self, block: _Block) -> tuple[_Block, bytes]:
        start = HEADER_BYTES + block.first * ROW.itemsize
        return block, await self._fetch(block.pack, start, block.count * ROW.itemsize)

    def _take(self, block: _Block, octets: bytes, into: SpooledRows) -> None:
        """The next rows, checked again: who knows what the store gives now."""
        pack, rows = self._packs[block.pack], np.frombuffer(octets, ROW)
        if block.first == 0:
            self._offset = index_bytes(pack.rows)
            self._rules = IndexRules(self._table, pack.key, pack.rows, pack.nbytes - self._offset)
        self._rules.add(rows)
        ends = self._offset + np.cumsum(rows["length"].astype(np.int64))
        placed = np.zeros(len(rows), PLACED)
        placed["key"] = (
            (self._table.slabs_of(chunks_of(rows)) << _SLAB)
            | (rows["array"].astype(np.int64) << _ARRAY)
            | rows["chunk"]
        )
        placed["offset"], placed["pack"] = ends - rows["length"], block.pack
        for name in ("length", "encoding", "check"):
            placed[name] = rows[name]
        self._offset = int(ends[-1])
        into.add(placed)

    # Patches ----------------------------------------------------------------------------------------------

    async def _check_batch(self, shared: _Shared) -> None:
        async with aclosing(
            by_weight(
                _ranges(shared.rows),
                self._fetch_patches,
                lambda rows: int(_ends(rows)[-1]) - int(rows["offset"][0]),
                budget=_RANGE_BYTES * _RANGES,
                most=_RANGES,
            )
        ) as fetched:
            async for rows, data in fetched:
                await asyncio.to_thread(self._write, shared, rows, data)

    async def _fetch_patches(self, rows: PlacedRows) -> tuple[PlacedRows, bytes]:
        start = int(rows["offset"][0])
        return rows, await self._fetch(int(rows["pack"][0]), start, int(_ends(rows)[-1]) - start)

    def _write(self, shared: _Shared, rows: PlacedRows, data: bytes) -> None:
        """Mark what patches write that follow one another in a pack."""
        pack, first = self._packs[int(rows["pack"][0])], int(rows["offset"][0])
        for row in rows:
            offset = int(row["offset"])
            patch = memoryview(data)[offset - first : offset - first + int(row["length"])]
            place = f"{pack.key}: patch at byte {offset}"
            if patch_check(patch) != row["check"].tobytes():
                message = f"{place} does not match its hash"
                raise CorruptError("bad_hash", message, where=pack.key, rule="DS044", offset=offset)
            array = self._table.arrays[int(row["key"]) >> _ARRAY & 0xFFFF]
            start, elements = shared.place(int(row["key"]))
            found = decode_patch(patch, int(row["encoding"]), array.element, elements, place)
            if not _mark(shared.bits[start : start + -(-elements // 8)], found.positions, elements):
                raise self._twice(array.pattern, int(row["key"]) & 0xFFFFFFFF)

    def _twice(self, pattern: str, chunk: int) -> CorruptError:
        message = f"{self._where}: two writers patch one element of {pattern} chunk {chunk}"
        return CorruptError("bad_patch", message, where=self._where, rule="DS045", tensor=pattern)

    async def _fetch(self, pack: int, start: int, length: int) -> bytes:
        key = self._packs[pack].key
        return await fetch_range(self._store, key, start, length, named_by=self._named_by, rule="DS061")


@dataclass(frozen=True, slots=True)
class _Shared:
    """All rows of some chunks, by chunk. Of chunk ``keys[n]``, ``bits[starts[n]:]`` say what is written."""

    rows: PlacedRows
    keys: NDArray[np.uint64]
    elements: NDArray[np.int64]
    starts: NDArray[np.int64]
    bits: NDArray[np.uint8]

    def place(self, key: int) -> tuple[int, int]:
        """Where the bits of a chunk start, and how many elements it has."""
        at = int(np.searchsorted(self.keys, np.uint64(key)))
        return int(self.starts[at]), int(self.elements[at])


def _several(rows: PlacedRows) -> PlacedRows:
    """Those of ``rows``, which come by key, whose key comes more than once."""
    same = rows["key"][1:] == rows["key"][:-1]
    several = np.zeros(len(rows), np.bool_)
    several[1:] |= same
    several[:-1] |= same
    return np.asarray(rows[several])


def _batches(rows: PlacedRows, table: TensorTable) -> Iterator[_Shared]:
    """Rows by chunk, those of a chunk together."""
    if not len(rows):
        return
    keys, firsts = np.unique(rows["key"], return_index=True)
    elements = np.zeros(len(keys), np.int64)
    arrays = (keys >> np.uint64(_ARRAY)) & np.uint64(0xFFFF)
    for number in np.unique(arrays).tolist():
        mine = arrays == number
        chunks = (keys[mine] & np.uint64(0xFFFFFFFF)).astype(np.int64)
        elements[mine] = table.arrays[number].grid.elements(chunks)
    nbytes = np.add.reduceat(rows["length"].astype(np.int64), firsts)
    parts = np.cumsum(nbytes) // _BATCH_BYTES, np.cumsum(elements) // _BATCH_ELEMENTS
    cuts = np.flatnonzero((np.diff(parts[0]) != 0) | (np.diff(parts[1]) != 0)) + 1
    bounds = [*firsts.tolist(), len(rows)]
    for first, last in itertools.pairwise([0, *cuts.tolist(), len(keys)]):
        octets = -(-elements[first:last] // 8)
        starts = np.cumsum(octets) - octets
        bits = np.zeros(int(octets.sum()), np.uint8)
        yield _Shared(
            rows[bounds[first] : bounds[last]], keys[first:last], elements[first:last], starts, bits
        )


async def _ranges(rows: PlacedRows) -> AsyncGenerator[PlacedRows, None]:
    """Rows whose patches are fetched in one range of a pack: pack by pack, in the order of their patches."""
    rows = rows[np.lexsort((rows["offset"], rows["pack"]))]
    gaps = rows["offset"][1:].astype(np.int64) - _ends(rows)[:-1]
    apart = (np.diff(rows["pack"].astype(np.int64)) != 0) | (gaps > _GAP_BYTES)
    spans = rows["length"].astype(np.int64)
    spans[1:] += np.where(apart, 0, gaps)
    cuts = np.flatnonzero(apart | (np.diff(np.cumsum(spans) // _RANGE_BYTES) != 0)) + 1
    for part in np.split(rows, cuts):
        yield part


def _ends(rows: PlacedRows) -> NDArray[np.int64]:
    return np.asarray(rows["offset"].astype(np.int64) + rows["length"])


def _mark(bits: NDArray[np.uint8], positions: NDArray[np.uint32], elements: int) -> bool:
    """Mark positions of a chunk as written; False where one of them was."""
    now = np.zeros(elements, np.bool_)
    now[positions] = True
    packed = np.packbits(now)
    if (bits & packed).any():
        return False
    bits |= packed
    return True
