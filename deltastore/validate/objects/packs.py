"""A pack of any size: header and index block by block, then its patches piece by piece.

SPEC sections "Patch" and "Pack". Of an index of several blocks each is read twice, since memory holds one:
the second time it must be the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import CorruptError, PatchError, UnsupportedError
from deltastore.format.index_rules import IndexRules
from deltastore.format.limits import PATCH_SLACK
from deltastore.format.pack import (
    HEADER_BYTES,
    PackHeader,
    index_bytes,
    pack_key,
    patch_checks,
    refused_patch,
)
from deltastore.format.records import PackRef
from deltastore.format.table import TensorTable
from deltastore.kernels.cpu import check
from deltastore.kernels.rows import ROW, Rows, offsets_of
from deltastore.stores.base import Store
from deltastore.validate.objects.streamed import PIECE_BYTES, Named, StreamedObject, cut

__all__ = [
    "BLOCK_ROWS",
    "PACK_CHECKS",
    "CheckedPack",
    "IndexCheck",
    "block_ends",
    "check_pack",
    "pack_memory",
]

PACK_CHECKS: Final = (
    *("DS030", "DS031", "DS032", "DS033", "DS034"),
    *("DS040", "DS041", "DS042", "DS043", "DS044", "DS061"),
)

BLOCK_ROWS: Final = 1 << 16
"""Rows of an index in memory: 2.75 MiB, and about three times that while they are checked."""

_ROW_MEMORY: Final = 200
_MOST_PATCH_FACTOR: Final = 2


@dataclass(frozen=True, slots=True)
class CheckedPack:
    """What a good pack gives its version: ``difference`` mod 2**64, and (slab, array, chunk) of its ends."""

    key: str
    nbytes: int
    rows: int
    difference: int
    first: tuple[int, ...]
    last: tuple[int, ...]


def pack_memory(pack: PackRef, table: TensorTable) -> int:
    """Bytes that checking a pack takes: a piece, or the longest patch that there can be, and a block."""
    sizes = (array.element.itemsize * int(np.prod(array.chunk)) for array in table.arrays)
    longest = _MOST_PATCH_FACTOR * max(sizes, default=0) + PATCH_SLACK
    return min(pack.bytes, max(PIECE_BYTES, longest)) + min(pack.rows, BLOCK_ROWS) * _ROW_MEMORY


async def check_pack(
    store: Store,
    version: int,
    pack: PackRef,
    table: TensorTable,
    *,
    piece: int = PIECE_BYTES,
    block: int = BLOCK_ROWS,
) -> CheckedPack:
    """Every byte of one pack of a version, against its entry and all rules that need no weights.

    Raises ``CorruptError`` for the first thing that is wrong, or ``UnsupportedError("newer_format")``. Takes
    about ``pack_memory``.
    """
    named = Named(pack_key(version, pack.sha256), pack.bytes, pack.sha256, f"version {version}", "DS061")
    read = StreamedObject(store, named, piece=piece)
    index = IndexCheck(version, pack, table, named.key)
    for end in block_ends(pack.rows, block):
        await read.advance(end, index.look)
    at = index_bytes(pack.rows)
    for number in range(len(index.blocks)):
        if read.damage is not None:
            break
        rows = await index.again(read, number)
        offsets = at + offsets_of(rows)
        for end in cut(at, int(offsets[-1]), offsets[:-1], offsets[1:], piece):
            patches = _Patches(rows, offsets, table, named.key)
            await read.advance(end, patches.look)
        at = int(offsets[-1])
    await read.finish()
    rules = index.rules
    return CheckedPack(named.key, pack.bytes, pack.rows, rules.difference, rules.first, rules.last)


def block_ends(rows: int, block: int) -> Iterator[int]:
    """Where the blocks of an index end; the first one holds the header."""
    for first in range(0, rows, block):
        yield index_bytes(min(first + block, rows))


class IndexCheck:
    """The index of one pack, block by block. ``blocks``: (start, end, sha256) of the rows of each."""

    def __init__(self, version: int, pack: PackRef, table: TensorTable, where: str) -> None:
        self._version = version
        self._pack = pack
        self._where = where
        self._hash = hashlib.sha256()
        self._only: Rows | None = None
        self.blocks: list[tuple[int, int, bytes]] = []
        self.rules = IndexRules(table, where, pack.rows, pack.bytes - index_bytes(pack.rows))

    def look(self, data: memoryview, start: int) -> None:
        """Check the next block; with the last one, the index as a whole."""
        self._hash.update(data)
        last = start + len(data) == index_bytes(self._pack.rows)
        another = last and self._hash.hexdigest() != self._pack.index_sha256
        try:
            self._take(data, start, last=last)
        except (CorruptError, UnsupportedError) as error:
            if not another:
                raise
            inside = str(error).removeprefix(f"{self._where}: ")
            self._refuse("bad_hash", f"its index does not match its hash: {inside}", error.offset)
        if another:
            self._refuse("bad_hash", "its index does not match its hash", None)

    def _take(self, data: memoryview, start: int, *, last: bool) -> None:
        if start == 0:
            self._begin(data)
        octets = data[HEADER_BYTES:] if start == 0 else data
        self._only = np.frombuffer(octets, ROW)
        self.rules.add(self._only)
        self.blocks.append((start + len(data) - len(octets), start + len(data), _sha256(octets)))
        if last:
            self._finish()

    def _begin(self, front: memoryview) -> None:
        header, pack = PackHeader.parse(front, self._where), self._pack
        if header.rows != pack.rows:
            self._refuse("bad_index", f"it has {header.rows} rows, its manifest says {pack.rows}", 12)
        nbytes = index_bytes(header.rows) + header.body
        if nbytes != pack.bytes:
            self._refuse("bad_index", f"it has {pack.bytes} bytes, its header says {nbytes}", 40, "DS040")
        if header.version != self._version:
            self._refuse("bad_index", f"it is of version {header.version}", 16)

    def _finish(self) -> None:
        pack, rules = self._pack, self.rules
        found, said = (rules.count, (rules.first[0], rules.last[0])), (pack.count, pack.slabs)
        if found != said:
            self._refuse(
                "bad_index", f"it has (count, slabs) {found}, its manifest says {said}", HEADER_BYTES
            )

    def _refuse(self, code: str, problem: str, offset: int | None, rule: str = "DS061") -> NoReturn:
        message = f"{self._where}: {problem}"
        raise CorruptError(code, message, where=self._where, rule=rule, offset=offset)

    async def again(self, read: StreamedObject, number: int) -> Rows:
        """The rows of a block once more."""
        if len(self.blocks) == 1 and self._only is not None:
            return self._only
        start, end, sha256 = self.blocks[number]
        octets = await read.read(start, end)
        if _sha256(octets) != sha256:
            message = f"{self._where}: the store gave another index when it was read again"
            raise CorruptError("bad_hash", message, where=self._where, rule="DS061", offset=start)
        return np.frombuffer(octets, ROW)


def _sha256(octets: memoryview) -> bytes:
    return hashlib.sha256(octets).digest()


@dataclass(frozen=True, slots=True)
class _Patches:
    """The patches of a block of rows, which start and end at ``offsets`` of the pack."""

    rows: Rows
    offsets: NDArray[np.int64]
    table: TensorTable
    where: str

    def look(self, data: memoryview, start: int) -> None:
        """Check the patches of a piece: their hashes and their rules."""
        first, last = np.searchsorted(self.offsets, (start, start + len(data))).tolist()
        rows, offsets = self.rows[first:last], self.offsets[first : last + 1]
        wrong = np.flatnonzero(rows["check"] != patch_checks(data, offsets - start))
        if len(wrong):
            raise self._refused(first + int(wrong[0]), "bad_hash", "it does not match its hash", "DS044")
        try:
            check(self.table.kernels, rows, np.frombuffer(data, np.uint8))
        except PatchError as error:
            raise self._refused(first + error.row, error.code, error.reason, error.rule) from None

    def _refused(self, number: int, code: str, problem: str, rule: str | None) -> CorruptError:
        row, offset = self.rows[number], int(self.offsets[number])
        return refused_patch(code, rule, row, self.table, self.where, offset, f": {problem}")
