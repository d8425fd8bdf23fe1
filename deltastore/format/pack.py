"""Packs: immutable objects that hold many patches and their index (SPEC section "Pack").

header (64 bytes) | index (44 bytes a row) | patches, one after another, in row order
"""

from __future__ import annotations

import hashlib
import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import CorruptError, PatchError, UnsupportedError
from deltastore.format.limits import FORMAT, PACK_BYTES, PATCH_SLACK, ROWS_PER_PACK
from deltastore.format.patch import EncodedPatch, Encoding, Patch, decode_patch
from deltastore.format.table import TensorTable
from deltastore.kernels.rows import ROW, Octets, Rows, chunks_of, offsets_of

__all__ = ["HEADER_BYTES", "ROW", "Pack", "PackBuilder", "PackIndex", "index_bytes", "pack_key"]

MAGIC: Final = b"\x93DSPACK\n"
_HEADER: Final = struct.Struct("<8sHHIQ16sQ16s")
HEADER_BYTES: Final = _HEADER.size
_MOVED_BYTES: Final = 1 << 20


def pack_key(version: int, sha256: str) -> str:
    """Where a pack stands: derived from its name, so that no record can point elsewhere."""
    return f"packs/{version:020d}/{sha256}.pack"


def index_bytes(rows: int) -> int:
    """Bytes of header and index together: the range a reader fetches to plan."""
    return HEADER_BYTES + rows * ROW.itemsize


@dataclass(frozen=True, slots=True)
class Pack:
    """A finished pack: its bytes, read-only, and what the manifest says of them."""

    data: memoryview
    sha256: str
    index_sha256: str
    rows: int
    count: int
    slabs: tuple[int, int]


class PackBuilder:
    """Collects patches in pack order and writes one pack. Holds at most the pack itself in memory.

    ``capacity``: about how many bytes it will have.
    """

    def __init__(self, version: int, nonce: bytes, *, capacity: int = 0) -> None:
        self._version = version
        self._nonce = nonce
        self._rows: list[Rows] = []
        self._body = _Growing(capacity)
        self._slabs: list[int] = []
        self._count = 0
        self.size = HEADER_BYTES

    def add(self, slab: int, array: int, chunk: int, patch: EncodedPatch, difference: int) -> None:
        """Append one patch; ``difference`` is its digest difference mod 2**64."""
        row = (array, chunk, len(patch.data), patch.count, int(patch.encoding), difference, bytes(16))
        rows = np.array([row], dtype=ROW)
        self.extend((slab, slab), rows, np.frombuffer(patch.data, dtype=np.uint8))

    def extend(self, slabs: tuple[int, int], rows: Rows, body: Octets) -> None:
        """Append patches; their hashes are filled in here. ``slabs``: those of the first and the last one."""
        named, whole = rows.copy(), body.data
        named["check"] = _hashes(whole, offsets_of(rows))
        self._rows.append(named)
        self._body.append(whole)
        self._slabs.extend(slabs)
        self._count += len(rows)
        self.size += named.nbytes + len(whole)

    def __len__(self) -> int:
        return self._count

    def finish(self) -> Pack:
        """The pack of everything added. Only once."""
        rows = np.concatenate(self._rows)
        body = len(self._body)
        header = _HEADER.pack(MAGIC, FORMAT, 0, len(rows), self._version, self._nonce, body, bytes(16))
        front = header + rows.tobytes()
        data = self._body.behind(front)
        return Pack(
            data=data,
            sha256=hashlib.sha256(data).hexdigest(),
            index_sha256=hashlib.sha256(front).hexdigest(),
            rows=len(rows),
            count=int(rows["count"].sum(dtype=np.uint64)),
            slabs=(self._slabs[0], self._slabs[-1]),
        )


class _Growing:
    """Bytes that are added at the end, and at last a front: all in one place, never there twice.

    ``capacity`` bytes are set aside at once: address space, which takes memory as it is written to.
    """

    def __init__(self, capacity: int) -> None:
        self._octets = np.empty(capacity, np.uint8)
        self._used = 0

    def __len__(self) -> int:
        return self._used

    def append(self, part: memoryview) -> None:
        self._reserve(len(part))
        self._octets[self._used : self._used + len(part)] = np.frombuffer(part, np.uint8)
        self._used += len(part)

    def behind(self, front: bytes) -> memoryview:
        """All bytes behind ``front``, read-only; nothing can be added any more."""
        self._reserve(len(front))
        for end in range(self._used, 0, -_MOVED_BYTES):
            start = max(end - _MOVED_BYTES, 0)
            self._octets[start + len(front) : end + len(front)] = self._octets[start:end]
        self._octets[: len(front)] = np.frombuffer(front, np.uint8)
        return self._octets[: self._used + len(front)].data.toreadonly()

    def _reserve(self, more: int) -> None:
        if self._used + more > len(self._octets):
            grown = np.empty(max(2 * len(self._octets), self._used + more), np.uint8)
            grown[: self._used] = self._octets[: self._used]
            self._octets = grown


@dataclass(frozen=True)
class PackIndex:
    """The index of one pack, checked against the table. ``rows`` has dtype ``ROW``."""

    version: int
    nonce: bytes
    rows: Rows
    body_bytes: int
    where: str

    @cached_property
    def offsets(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Where each patch starts in the object; one more entry for the end."""
        return index_bytes(len(self.rows)) + offsets_of(self.rows)

    @classmethod
    def parse(cls, front: bytes | memoryview, table: TensorTable, where: str) -> PackIndex:
        """Read header and index; every rule that needs no patch is checked.

        ``front`` is the object's first bytes, at least header and index. Raises
        ``CorruptError("bad_index")`` naming ``where``, or ``UnsupportedError("newer_format")``.
        """
        index = cls._parse_header(memoryview(front), where)
        for problem in _row_problems(index, table):
            raise CorruptError("bad_index", f"{where}: {problem}", where=where)
        return index

    @classmethod
    def _parse_header(cls, front: memoryview, where: str) -> PackIndex:
        if len(front) < HEADER_BYTES or bytes(front[:8]) != MAGIC:
            raise CorruptError("bad_index", f"{where} is not a pack", where=where)
        _, written, flags, count, version, nonce, body, reserved = _HEADER.unpack_from(front)
        if written > FORMAT:
            raise UnsupportedError(
                "newer_format",
                f"{where} is of format version {written}, this release reads up to {FORMAT}: "
                "upgrade deltastore",
                where=where,
            )
        if written != FORMAT or flags or any(reserved):
            raise CorruptError("bad_index", f"{where}: a reserved header field is set", where=where)
        if not 1 <= count <= ROWS_PER_PACK or len(front) < index_bytes(count):
            raise CorruptError("bad_index", f"{where}: {count} index rows do not fit", where=where)
        rows = np.frombuffer(front, dtype=ROW, count=count, offset=HEADER_BYTES)
        return cls(version, nonce, rows, body, where)

    def patches(self) -> Iterator[tuple[int, Any, int, int]]:
        """(row number, row, start, end) of every patch, byte offsets in the object."""
        for number, row in enumerate(self.rows):
            yield number, row, int(self.offsets[number]), int(self.offsets[number + 1])

    def body(self, data: memoryview, table: TensorTable) -> Octets:
        """The patches of the whole pack ``data``, each of them checked against its hash.

        Raises ``CorruptError("bad_hash")``; its message names pack, array and chunk.
        """
        wrong = np.flatnonzero(self.rows["check"] != _hashes(data, self.offsets))
        if len(wrong):
            place = self._place(self.rows[wrong[0]], table)
            raise CorruptError("bad_hash", f"{place} does not match its hash", where=self.where)
        return np.frombuffer(data, dtype=np.uint8, offset=index_bytes(len(self.rows)))

    def check_hash(self, number: int, data: bytes | memoryview, table: TensorTable) -> Octets:
        """Patch number ``number``, checked against its hash. Raises ``CorruptError("bad_hash")``."""
        row = self.rows[number]
        self._check_hash(row, data, self._place(row, table))
        return np.frombuffer(data, dtype=np.uint8)

    def _check_hash(self, row: Any, data: bytes | memoryview, place: str) -> None:
        if hashlib.sha256(data).digest()[:16] != bytes(row["check"]):
            raise CorruptError("bad_hash", f"{place} does not match its hash", where=self.where)

    def named(self, error: PatchError, table: TensorTable, *, first: int = 0) -> CorruptError:
        """What a kernel says of one of its patches, with the names of pack, array and chunk.

        ``first``: the number of the row that was the kernel's first.
        """
        place = self._place(self.rows[first + error.row], table)
        return CorruptError(error.code, f"{place}: {error.reason}", where=self.where)

    def _place(self, row: Any, table: TensorTable) -> str:
        return f"{self.where}: patch of {table.arrays[int(row['array'])].pattern} chunk {int(row['chunk'])}"

    def read_patch(self, row: Any, data: memoryview, table: TensorTable) -> Patch:
        """Check ``data`` against its row and decode it.

        Raises ``CorruptError`` with ``bad_hash`` or ``bad_patch``; its message names pack, array and chunk.
        """
        array, chunk = table.arrays[int(row["array"])], int(row["chunk"])
        place = self._place(row, table)
        self._check_hash(row, data, place)
        elements = array.grid.box(chunk).elements
        try:
            patch = decode_patch(data, int(row["encoding"]), array.element, elements, place)
        except CorruptError as error:
            raise CorruptError(error.code, str(error), where=self.where) from None
        if len(patch.positions) != int(row["count"]):
            raise CorruptError("bad_patch", f"{place} writes another count than its row", where=self.where)
        return patch


def _hashes(data: memoryview, offsets: NDArray[np.int64]) -> Rows:
    """The first 16 bytes of the sha256 of every patch, which start and end at ``offsets`` of ``data``."""
    ends = offsets.tolist()
    digests = [hashlib.sha256(data[start:end]).digest()[:16] for start, end in itertools.pairwise(ends)]
    return np.frombuffer(b"".join(digests), dtype="V16")


def _row_problems(index: PackIndex, table: TensorTable) -> Iterator[str]:
    """What is wrong with the rows, most basic first; later checks rely on earlier ones."""
    rows = index.rows
    if int(rows["length"].astype(np.int64).sum()) != index.body_bytes:
        yield "the patch lengths do not add up to the body"
    if index_bytes(len(rows)) + index.body_bytes > PACK_BYTES:
        yield f"a pack of more than {PACK_BYTES} bytes"
    if bool((rows["length"] % 4 != 0).any()) or bool((rows["length"] == 0).any()):
        yield "a patch length is no positive multiple of 4"
    if bool((rows["encoding"] > max(Encoding)).any()):
        yield "a patch encoding is not known"
    if bool((rows["array"] >= len(table.arrays)).any()):
        yield "an array number is out of range"
    keys = np.zeros((len(rows), 3), dtype=np.int64)
    keys[:, 1], keys[:, 2] = rows["array"], rows["chunk"]
    for number, mine in _by_array(rows["array"]):
        array = table.arrays[number]
        chunks = rows["chunk"][mine].astype(np.int64)
        if bool((chunks >= len(array.grid)).any()):
            yield f"a chunk number of array {number} is out of range"
        elements = array.grid.elements(chunks)
        counts = rows["count"][mine].astype(np.int64)
        if bool((counts < 1).any()) or bool((counts > elements).any()):
            yield f"a changed count of array {number} is out of range"
        raw = rows["encoding"][mine] == Encoding.RAW
        size = elements * array.element.itemsize
        padded = -(-size // 4) * 4
        if bool((rows["length"][mine][raw] != padded[raw]).any()) or bool((counts != elements)[raw].any()):
            yield f"a raw patch of array {number} has the wrong size"
        if bool((rows["length"][mine] > 2 * size + PATCH_SLACK).any()):
            yield f"a patch of array {number} is far longer than its chunk"
    keys[:, 0] = table.slabs_of(chunks_of(rows))
    order = np.lexsort((keys[:, 2], keys[:, 1], keys[:, 0]))
    if bool((order != np.arange(len(rows))).any()) or bool((np.diff(keys, axis=0) == 0).all(axis=1).any()):
        yield "the rows are not in order, or name a chunk twice"


def _by_array(numbers: np.ndarray[Any, Any]) -> Iterator[tuple[int, np.ndarray[Any, Any]]]:
    """Each array number that occurs, with the places of its rows. O(n log n), however many arrays occur."""
    order = np.argsort(numbers, kind="stable")
    found, starts = np.unique(numbers[order], return_index=True)
    yield from zip(found.tolist(), np.split(order, starts[1:]), strict=True)
