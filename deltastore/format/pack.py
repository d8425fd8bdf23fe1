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
from deltastore.format.index_rules import HEADER_BYTES, IndexRules
from deltastore.format.limits import FORMAT, PACK_BYTES, ROWS_PER_PACK
from deltastore.format.patch import EncodedPatch, Patch
from deltastore.format.table import TensorTable
from deltastore.kernels.reference import patch as reference
from deltastore.kernels.rows import ROW, RULE_OF, Octets, Rows, offsets_of, places_of

__all__ = [
    "HEADER_BYTES",
    "ROW",
    "Pack",
    "PackBuilder",
    "PackHeader",
    "PackIndex",
    "header_fields",
    "index_bytes",
    "pack_key",
    "patch_check",
    "patch_checks",
    "refused_patch",
]

MAGIC: Final = b"\x93DSPACK\n"
_HEADER: Final = struct.Struct("<8sHHIQ16sQ16s")
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
        named["check"] = patch_checks(whole, offsets_of(rows))
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


@dataclass(frozen=True, slots=True)
class PackHeader:
    """The first bytes of a pack: its version and nonce, how many rows, and bytes of all patches."""

    version: int
    nonce: bytes
    rows: int
    body: int

    @classmethod
    def parse(cls, front: bytes | memoryview, where: str) -> PackHeader:
        """Read the header, which ``front`` begins with.

        Raises ``CorruptError("bad_index")`` naming ``where``, or ``UnsupportedError("newer_format")``.
        """
        if len(front) < HEADER_BYTES or bytes(front[:8]) != MAGIC:
            raise _bad_header(where, "DS040", 0, "it is not a pack")
        _, written, flags, rows, version, nonce, body, reserved = _HEADER.unpack_from(front)
        if written > FORMAT:
            raise UnsupportedError(
                "newer_format",
                f"{where} is of format version {written}, this release reads up to {FORMAT}: "
                "upgrade deltastore",
                where=where,
                rule="DS040",
                offset=8,
            )
        if written != FORMAT:
            raise _bad_header(where, "DS040", 8, f"it says format version {written}")
        if flags or any(reserved):
            raise _bad_header(where, "DS040", 10 if flags else 48, "a reserved header field is set")
        if not 1 <= rows <= ROWS_PER_PACK:
            raise _bad_header(where, "DS040", 12, f"{rows} index rows")
        if index_bytes(rows) + body > PACK_BYTES:
            raise _bad_header(where, "DS040", 40, f"a pack of more than {PACK_BYTES} bytes")
        return cls(version, nonce, rows, body)


def header_fields(front: bytes) -> dict[str, Any]:
    """What the header that ``front`` begins with says, unchecked; bytes as hexadecimal text."""
    names = ("magic", "format", "flags", "rows", "version", "nonce", "patch_bytes", "reserved")
    values = (one.hex() if isinstance(one, bytes) else one for one in _HEADER.unpack_from(front))
    return dict(zip(names, values, strict=True))


def _bad_header(where: str, rule: str, offset: int, problem: str) -> CorruptError:
    return CorruptError("bad_index", f"{where}: {problem}", where=where, rule=rule, offset=offset)


@dataclass(frozen=True)
class PackIndex:
    """The index of one pack, checked against the table. ``rows`` has dtype ``ROW``.

    ``starts``: where their patches start in the object, for an index that has some of its rows only.
    """

    version: int
    nonce: bytes
    rows: Rows
    body_bytes: int
    where: str
    starts: NDArray[np.int64] | None = None

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
        header = PackHeader.parse(front, where)
        if len(front) < index_bytes(header.rows):
            raise _bad_header(where, "DS040", 12, f"{header.rows} index rows do not fit")
        rows = np.frombuffer(front, dtype=ROW, count=header.rows, offset=HEADER_BYTES)
        IndexRules(table, where, header.rows, header.body).add(rows)
        return cls(header.version, header.nonce, rows, header.body, where)

    def patches(self) -> Iterator[tuple[int, Any, int, int]]:
        """(row number, row, start, end) of every patch, byte offsets in the object."""
        for number, row in enumerate(self.rows):
            yield number, row, int(self.offsets[number]), int(self.offsets[number + 1])

    def body(self, data: memoryview, table: TensorTable) -> Octets:
        """The patches of the whole pack ``data``, each of them checked against its hash.

        Raises ``CorruptError("bad_hash")``; its message names pack, array and chunk.
        """
        wrong = np.flatnonzero(self.rows["check"] != patch_checks(data, self.offsets))
        if len(wrong):
            raise self._bad("bad_hash", self.rows[wrong[0]], table, " does not match its hash", "DS044")
        return np.frombuffer(data, dtype=np.uint8, offset=index_bytes(len(self.rows)))

    def check_hash(self, number: int, data: bytes | memoryview, table: TensorTable) -> Octets:
        """Patch number ``number``, checked against its hash. Raises ``CorruptError("bad_hash")``."""
        self._check_hash(self.rows[number], data, table)
        return np.frombuffer(data, dtype=np.uint8)

    def _check_hash(self, row: Any, data: bytes | memoryview, table: TensorTable) -> None:
        if patch_check(data) != bytes(row["check"]):
            raise self._bad("bad_hash", row, table, " does not match its hash", "DS044")

    def start(self, number: int) -> int:
        """Where patch number ``number`` starts in the object."""
        return int((self.offsets if self.starts is None else self.starts)[number])

    def named(self, error: PatchError, table: TensorTable, *, first: int = 0) -> CorruptError:
        """What a kernel says of one of its patches, with the names of pack, array and chunk.

        ``first``: the number of the row that was the kernel's first.
        """
        row = self.rows[first + error.row]
        return self._bad("bad_patch", row, table, f": {error.reason}", RULE_OF[error.reason])

    def read_patch(self, row: Any, data: memoryview, table: TensorTable) -> Patch:
        """Check ``data`` against its row and decode it.

        Raises ``CorruptError`` with ``bad_hash`` or ``bad_patch``; its message names pack, array and chunk.
        """
        self._check_hash(row, data, table)
        array = table.arrays[int(row["array"])]
        elements = array.grid.box(int(row["chunk"])).elements
        try:
            patch = reference.decode_patch(data, int(row["encoding"]), array.element, elements)
        except ValueError as error:
            raise self._bad("bad_patch", row, table, f": {error}", RULE_OF[str(error)]) from None
        if len(patch.positions) != int(row["count"]):
            raise self._bad("bad_patch", row, table, " writes another count than its row", "DS044")
        return Patch(patch)

    def _bad(self, code: str, row: Any, table: TensorTable, problem: str, rule: str) -> CorruptError:
        number = int(np.flatnonzero(places_of(self.rows) == places_of(row))[0])
        return refused_patch(code, rule, row, table, self.where, self.start(number), problem)


def patch_check(data: bytes | memoryview) -> bytes:
    """What an index row says of a patch: the first 16 bytes of its sha256."""
    return hashlib.sha256(data).digest()[:16]


def patch_checks(data: memoryview, offsets: NDArray[np.int64]) -> Rows:
    """``patch_check`` of every patch, dtype ``V16``; they start and end at ``offsets`` of ``data``."""
    ends = offsets.tolist()
    digests = [patch_check(data[start:end]) for start, end in itertools.pairwise(ends)]
    return np.frombuffer(b"".join(digests), dtype="V16")


def refused_patch(
    code: str, rule: str | None, row: Any, table: TensorTable, where: str, offset: int, problem: str
) -> CorruptError:
    """The error for one patch, at byte ``offset`` of pack ``where``, with the names of array and chunk."""
    pattern = table.arrays[int(row["array"])].pattern
    message = f"{where}: patch of {pattern} chunk {int(row['chunk'])}{problem}"
    return CorruptError(code, message, where=where, rule=rule, offset=offset, tensor=pattern)
