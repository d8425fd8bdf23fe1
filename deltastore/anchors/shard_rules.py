"""What every shard keeps to: its index, its checksums, and the sums of its chunks (SPEC section "Anchors").

A shard is its chunks, each followed by a CRC-32C of 4 bytes, then an index of (offset, length) pairs of
64-bit integers, row-major over the shard's chunks, then the index's CRC-32C.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, Final

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from deltastore.anchors.sharding import ShardGrid
from deltastore.errors import CorruptError
from deltastore.format.dtypes import Dtype
from deltastore.format.table import Array
from deltastore.layout.weights import Bits

__all__ = [
    "SUM",
    "Sums",
    "check_chunk",
    "checked_index",
    "chunk_offsets",
    "chunk_view",
    "index_start",
    "most_bytes",
    "shard_index_bytes",
    "stored_chunk_bytes",
    "sum_of",
]

Sums = np.ndarray[Any, Any]
"""The sums of an array's chunks, by chunk number: ``(len(array.grid),)`` of dtype ``SUM``."""

SUM: Final = np.dtype("V16")
"""The first 16 bytes of the sha256 of a chunk as it is stored, its checksum included."""

_CHECKSUM_BYTES: Final = 4
_ENTRY: Final = np.dtype([("offset", "<u8"), ("length", "<u8")])
_ABSENT: Final = (1 << 64) - 1


def stored_chunk_bytes(grid: ShardGrid, element: Dtype) -> int:
    """Bytes of a chunk in a shard, with its checksum."""
    return math.prod(grid.chunks.chunk) * element.itemsize + _CHECKSUM_BYTES


def shard_index_bytes(grid: ShardGrid) -> int:
    """Bytes of a shard's index, with its checksum: the last ones of the object."""
    return grid.places * _ENTRY.itemsize + _CHECKSUM_BYTES


def most_bytes(grid: ShardGrid, element: Dtype) -> int:
    """Bytes of a shard that holds all its chunks: no shard is longer."""
    return grid.places * stored_chunk_bytes(grid, element) + shard_index_bytes(grid)


def sum_of(stored: bytes | memoryview) -> bytes:
    """The sum of a chunk, 16 bytes."""
    return hashlib.sha256(stored).digest()[: SUM.itemsize]


def index_start(nbytes: int, grid: ShardGrid, array: Array, where: str) -> int:
    """Where the index of a shard of ``nbytes`` starts. Raises ``CorruptError("bad_anchor")``, DS071."""
    start = nbytes - shard_index_bytes(grid)
    if start < 0:
        raise _bad("DS071", f"{nbytes} bytes are too few for its index", where, array, 0)
    return start


def checked_index(index: bytes | memoryview, start: int, array: Array, where: str) -> memoryview:
    """The index of a shard, which stands at ``start``; ``CorruptError("bad_anchor")``, DS073."""
    if not _has_checksum(index):
        raise _bad("DS073", "its index does not have its checksum", where, array, start)
    return memoryview(index)


def chunk_offsets(
    index: memoryview, grid: ShardGrid, shard: int, array: Array, where: str, *, end: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The chunks of a shard, int64 (k,), ascending, and where each starts; all of them end at ``end``.

    ``index`` is the shard's, whose checksum is not looked at. Raises ``CorruptError("bad_anchor")`` for
    chunks that are left out (DS070), of another length, not inside the object, or that share bytes, and for
    anything at the places of chunks that the array has not (DS071).
    """
    chunks, places = grid.inside(shard)
    entries = np.frombuffer(index, _ENTRY, grid.places)
    if len(places) < grid.places:
        _check_unused(entries, places, array, where, end)
        entries = entries[places]
    size = stored_chunk_bytes(grid, array.element)
    offsets, lengths = entries["offset"], entries["length"]
    # Sizes up to `end` are far from where the sum of two of them would wrap.
    wrong = (lengths != size) | (offsets > max(end - size, 0)) | (size > end)
    if wrong.any():
        first = int(wrong.argmax())
        at = end + int(places[first]) * _ENTRY.itemsize
        if offsets[first] == lengths[first] == _ABSENT:
            problem = f"chunk {chunks[first]} is left out; whoever wrote it must store chunks of zeros too"
            raise _bad("DS070", problem, where, array, at)
        problem = f"chunk {chunks[first]} is not {size} bytes inside the object"
        raise _bad("DS071", problem, where, array, at)
    starts = ordered = offsets.astype(np.int64)
    if (ordered[1:] < ordered[:-1]).any():
        ordered = np.sort(starts)
    shared = ordered[1:] - ordered[:-1] < size
    if shared.any():
        raise _bad("DS071", "two chunks share bytes", where, array, int(ordered[shared.argmax() + 1]))
    return chunks, starts


def _check_unused(
    entries: NDArray[Any], places: NDArray[np.int64], array: Array, where: str, end: int
) -> None:
    """Places of a shard's index beyond the array, at its upper edges: they are absent."""
    unused = np.ones(len(entries), np.bool_)
    unused[places] = False
    wrong = unused & ((entries["offset"] != _ABSENT) | (entries["length"] != _ABSENT))
    if wrong.any():
        at = end + int(wrong.argmax()) * _ENTRY.itemsize
        raise _bad("DS071", "its index has a chunk where the array has none", where, array, at)


def check_chunk(
    stored: bytes | memoryview, chunk: int, offset: int, array: Array, where: str, sums: Sums | None
) -> None:
    """One chunk as it stands at ``offset`` of a shard: its checksum (DS073), and its sum (DS074)."""
    if not _has_checksum(stored):
        raise _bad("DS073", f"chunk {chunk} does not have its checksum", where, array, offset)
    if sums is not None and sum_of(stored) != sums[chunk].tobytes():
        raise _bad("DS074", f"chunk {chunk} is not the one that was stored there", where, array, offset)


def chunk_view(data: bytes | memoryview, offset: int, chunk: int, grid: ShardGrid, array: Array) -> Bits:
    """The elements of a chunk that starts at ``offset`` of ``data``, shape ``box.size``: a view."""
    shape = grid.chunks.chunk
    whole = np.frombuffer(data, array.element.storage, math.prod(shape), offset).reshape(shape)
    return whole[tuple(slice(size) for size in grid.chunks.box(chunk).size)]


def _has_checksum(stored: bytes | memoryview) -> bool:
    """Whether the last bytes are the CRC-32C of those before them."""
    octets = np.frombuffer(stored, np.uint8)
    found: int = google_crc32c.value(octets[:-_CHECKSUM_BYTES])
    return found == int.from_bytes(octets[-_CHECKSUM_BYTES:].tobytes(), "little")


def _bad(rule: str, problem: str, where: str, array: Array, offset: int) -> CorruptError:
    message = f"{where} is not a shard of this anchor: {problem}; take another version"
    return CorruptError("bad_anchor", message, where=where, rule=rule, offset=offset, tensor=array.pattern)
