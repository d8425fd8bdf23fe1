"""Replaying a stream: the weights of any version, chunk by chunk, from an anchor and the deltas after it.

SPEC section "Reading a version". Memory: the indexes of the deltas on the path, one shard of the anchor and
one chunk, whatever the model's size.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from deltastore.anchors.reading import AnchorWeights
from deltastore.errors import CorruptError, NotFoundError, PatchError
from deltastore.format.digest import MODULUS
from deltastore.format.limits import TABLE_BYTES
from deltastore.format.pack import PackIndex, index_bytes, pack_key
from deltastore.format.patch import check_disjoint
from deltastore.format.records import AnchorRecord, DeltaRecord, PackRef, record_key, table_key
from deltastore.format.table import TensorTable
from deltastore.kernels.cpu import resolve, scatter
from deltastore.kernels.pieces import Pieces
from deltastore.kernels.rows import StagedBits, chunks_of, places_of
from deltastore.log import Log, Manifest
from deltastore.stores.base import Store
from deltastore.stores.named import fetch_range, lost_object

__all__ = [
    "DeltaPatches",
    "Path",
    "ReplayedWeights",
    "StoredPatch",
    "fetch_pack_index",
    "find_path",
    "read_table",
]

Bits = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Path:
    """How to reach a version: load ``anchor`` (None: start from the one in hand), then apply ``deltas``."""

    anchor: AnchorRecord | None
    deltas: tuple[DeltaRecord, ...]

    @property
    def target(self) -> Manifest | None:
        """The manifest of the version reached, or None for a path of no steps."""
        return self.deltas[-1] if self.deltas else self.anchor


async def find_path(log: Log, target: Manifest, *, at: int | None = None) -> Path:
    """The path to ``target`` along base versions, back to its anchor or to version ``at``, if that is first.

    Raises ``CorruptError("bad_chain")`` when a base version is not in the log or has another table.
    """
    deltas: list[DeltaRecord] = []
    wanted = target.version
    if wanted == at:
        return Path(None, ())
    async for record in log.backwards(target):
        if not isinstance(record, AnchorRecord | DeltaRecord) or record.version != wanted:
            continue
        if record.table != target.table:
            where = record_key(record.slot)
            message = f"{where} is a base of version {target.version} with another table"
            raise CorruptError("bad_chain", message, where=where, rule="DS060")
        if isinstance(record, AnchorRecord):
            return Path(record, tuple(reversed(deltas)))
        deltas.append(record)
        wanted = record.base
        if wanted == at:
            return Path(None, tuple(reversed(deltas)))
    where = record_key(deltas[-1].slot)
    message = f"{where} rests on version {wanted}, which is not there"
    raise CorruptError("bad_chain", message, where=where, rule="DS060")


async def read_table(store: Store, sha256: str) -> TensorTable:
    """The tensor table with this hash."""
    key = table_key(sha256)
    try:
        data = await store.get(key, limit=TABLE_BYTES)
    except NotFoundError:
        raise lost_object(key, "a record") from None
    table = TensorTable.from_bytes(data, key)
    if table.sha256 != sha256:
        message = f"{key} is not the object that its name says"
        raise CorruptError("bad_hash", message, where=key, rule="DS011")
    return table


@dataclass(frozen=True, slots=True)
class StoredPatch:
    """One patch of one delta: where its bytes stand."""

    index: PackIndex
    row: int
    start: int
    end: int


async def fetch_pack_index(store: Store, version: int, pack: PackRef, table: TensorTable) -> PackIndex:
    """Fetch and check header and index of one pack of a version, without its patches."""
    key = pack_key(version, pack.sha256)
    named_by, size = f"version {version}", index_bytes(pack.rows)
    front = await fetch_range(store, key, 0, size, named_by=named_by, rule="DS061")
    return checked_index(front, version, pack, table)


def checked_index(front: bytes | memoryview, version: int, pack: PackRef, table: TensorTable) -> PackIndex:
    """Check an index against its hash, parse it, and compare it with what is said of its pack.

    ``front`` is the pack's first bytes, at least header and index. Raises ``CorruptError`` (``bad_hash``,
    ``bad_index``) naming the pack.
    """
    key = pack_key(version, pack.sha256)
    if hashlib.sha256(memoryview(front)[: index_bytes(pack.rows)]).hexdigest() != pack.index_sha256:
        message = f"the index of {key} does not match its hash"
        raise CorruptError("bad_hash", message, where=key, rule="DS061", offset=0)
    index = PackIndex.parse(front, table, key)
    count = int(index.rows["count"].sum(dtype=np.uint64))
    facts = (index.version, len(index.rows), int(index.offsets[-1]), count, _end_slabs(index, table))
    said = (version, pack.rows, pack.bytes, pack.count, pack.slabs)
    if facts != said:
        raise CorruptError(
            "bad_index",
            f"{key} has (version, rows, bytes, count, slabs) {facts}, its manifest says {said}",
            where=key,
            rule="DS061",
        )
    return index


def _end_slabs(index: PackIndex, table: TensorTable) -> tuple[int, int]:
    """The slabs of the first and the last row."""
    first, last = table.slabs_of(chunks_of(index.rows[[0, -1]])).tolist()
    return first, last


class DeltaPatches:
    """The patches of one delta, found by chunk. Memory: 68 bytes an index row."""

    def __init__(self, store: Store, table: TensorTable, indexes: Sequence[PackIndex]) -> None:
        self._store = store
        self._table = table
        self._indexes = indexes
        places = [places_of(index.rows) for index in indexes]
        together = np.concatenate([np.zeros(0, dtype=np.uint64), *places])
        self._order = np.argsort(together, kind="stable").astype(np.uint32)
        self._places = together[self._order].data  # of which single items are taken faster
        self._first_rows = np.cumsum([0, *(len(index.rows) for index in indexes)])

    @classmethod
    async def open(cls, store: Store, table: TensorTable, record: DeltaRecord) -> Self:
        """Fetch all indexes of a delta: a few ranged reads, no patch bytes."""
        return cls(
            store,
            table,
            [await fetch_pack_index(store, record.version, pack, table) for pack in record.packs],
        )

    @property
    def difference(self) -> int:
        """By how much the delta changes the digest, as its indexes say; mod 2**64."""
        sums = [int(index.rows["difference"].sum(dtype=np.uint64)) for index in self._indexes]
        return sum(sums) % MODULUS

    def chunks(self) -> list[tuple[int, int]]:
        """(array, chunk) of every chunk that is patched, ascending."""
        places = np.unique(self._places)
        arrays, chunks = places >> np.uint64(32), places & np.uint64(0xFFFFFFFF)
        return list(zip(arrays.tolist(), chunks.tolist(), strict=True))

    def of(self, array: int, chunk: int) -> list[StoredPatch]:
        """The patches of a chunk: none, one, or one per writer that owns part of it."""
        place = (array << 32) | chunk
        first = bisect_left(self._places, place)
        last = first
        while last < len(self._places) and self._places[last] == place:
            last += 1
        return [self._stored(int(number)) for number in self._order[first:last]]

    def _stored(self, number: int) -> StoredPatch:
        pack = int(np.searchsorted(self._first_rows, number, "right")) - 1
        index, row = self._indexes[pack], number - int(self._first_rows[pack])
        return StoredPatch(index, row, int(index.offsets[row]), int(index.offsets[row + 1]))

    async def apply(self, stored: StoredPatch, bits: Bits) -> int:
        """Fetch and check one patch and write it into its chunk's ``bits``; the digest difference it makes.

        ``bits`` has the shape of the chunk's box. Raises ``CorruptError`` with nothing written, also when the
        difference is not that of its row.
        """
        staged, difference = await self._staged(stored, bits)
        self._scatter(stored, bits, staged)
        return difference

    async def apply_all(self, patches: Sequence[StoredPatch], bits: Bits) -> None:
        """Apply the patches of a chunk. Raises what ``apply`` does, also where two write one element."""
        staged = [(await self._staged(stored, bits))[0] for stored in patches]
        if len(staged) > 1:
            check_disjoint([one.positions for one in staged], patches[-1].index.where)
        for stored, one in zip(patches, staged, strict=True):
            self._scatter(stored, bits, one)

    def _pieces(self, stored: StoredPatch, bits: Bits) -> Pieces:
        array, chunk = (int(stored.index.rows[name][stored.row]) for name in ("array", "chunk"))
        return Pieces.of_chunks(self._table.kernels, [(array, chunk, bits)])

    def _scatter(self, stored: StoredPatch, bits: Bits, staged: StagedBits) -> None:
        scatter(self._pieces(stored, bits), staged)

    async def _staged(self, stored: StoredPatch, bits: Bits) -> tuple[StagedBits, int]:
        """The new bits of a patch, and the digest difference that they make."""
        row, pieces = stored.index.rows[stored.row : stored.row + 1], self._pieces(stored, bits)
        array, chunk = int(row["array"][0]), int(row["chunk"][0])
        body = stored.index.check_hash(stored.row, await self._fetch(stored), self._table)
        try:
            staged, differences = resolve(pieces, row, body)
        except PatchError as error:
            raise stored.index.named(error, self._table, first=stored.row) from None
        if differences[0] != row["difference"][0]:
            where, pattern = stored.index.where, self._table.arrays[array].pattern
            raise CorruptError(
                "bad_digest",
                f"{where}: the digest difference of {pattern} chunk {chunk} is wrong",
                where=where,
                rule="DS046",
                offset=index_bytes(stored.row),
                tensor=pattern,
            )
        return staged, int(differences[0])

    async def _fetch(self, stored: StoredPatch) -> bytes:
        index, length = stored.index, stored.end - stored.start
        named_by = f"version {index.version}"
        return await fetch_range(
            self._store, index.where, stored.start, length, named_by=named_by, rule="DS061"
        )


class ReplayedWeights:
    """The weights of one stored version as ``Weights``."""

    def __init__(self, anchor: AnchorWeights, deltas: list[DeltaPatches], table: TensorTable) -> None:
        self._anchor = anchor
        self._deltas = deltas
        self._table = table

    @classmethod
    async def open(cls, store: Store, path: Path, table: TensorTable) -> Self:
        """Prepare to read the version at the end of ``path``, which must start at an anchor."""
        if path.anchor is None:
            raise ValueError("a path that starts at no anchor")
        anchor = await AnchorWeights.open(store, path.anchor.version, path.anchor.anchor, table)
        deltas = [await DeltaPatches.open(store, table, record) for record in path.deltas]
        return cls(anchor, deltas, table)

    @property
    def table(self) -> TensorTable:
        """The version's table."""
        return self._table

    async def read(self, array: int, chunk: int) -> Bits:
        """The chunk's bits: the anchor's, with every patch on the path applied."""
        bits = await self._anchor.read(array, chunk)
        changed = None
        for delta in self._deltas:
            patches = delta.of(array, chunk)
            if patches:
                changed = np.array(bits, order="C") if changed is None else changed
                await delta.apply_all(patches, changed)
        return bits if changed is None else changed
