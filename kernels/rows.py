"""Index rows and the lists of chunks that kernels take and give (SPEC section "Pack").

A kernel is called once for many patches. What it knows of each is its index row, exactly as a pack holds it,
and the patches one after another in one buffer, the *body*: patch r is ``body[offsets[r] : offsets[r + 1]]``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import InputError

__all__ = [
    "CHUNK",
    "REASONS",
    "ROW",
    "RULE_OF",
    "ChunkList",
    "EncodedPatches",
    "Encoding",
    "ListedChanges",
    "Octets",
    "Rows",
    "StagedBits",
    "check_pack",
    "chunk_list",
    "chunks_of",
    "offsets_of",
    "places_of",
]

Rows = np.ndarray[Any, Any]
ChunkList = np.ndarray[Any, Any]
Octets = NDArray[np.uint8]

ROW: Final = np.dtype(
    [
        ("array", "<u4"),
        ("chunk", "<u4"),
        ("length", "<u4"),
        ("count", "<u4"),
        ("encoding", "<u4"),
        ("difference", "<u8"),
        ("check", "V16"),
    ]
)
"""One index row, 44 bytes. ``check`` is the first 16 bytes of the patch's sha256."""

CHUNK: Final = np.dtype([("array", "<u4"), ("chunk", "<u4")])
"""One chunk of a table, 8 bytes."""

REASONS: Final = (
    "",
    "its row names no chunk of the table, or bytes beyond the body",
    "its encoding is not known",
    "it is cut short",
    "its number of runs is out of range",
    "its widths are none of the format's, or do not ascend",
    "a run header is out of range",
    "bytes follow its last run",
    "an unused bit is set",
    "a run has another number of positions than its header says",
    "positions are out of range or out of order",
    "a position stands in two runs",
    "a raw patch has another size than its chunk",
    "it writes another number of elements than its row says",
    "it does not fit the current weights; they are not of its base version",
)
"""Why a patch is refused. Compiled kernels answer with the index; several may hold, and then any is right."""

_RULES: Final = (
    *("DS041", "DS041", "DS034", "DS031", "DS031", "DS031", "DS034"),
    *("DS030", "DS032", "DS032", "DS033", "DS043", "DS044", "DS036"),
)

RULE_OF: Final = dict(zip(REASONS[1:], _RULES, strict=True))
"""The requirement that each reason breaks."""


class Encoding(IntEnum):
    """How a patch is written; the number in its index row."""

    RUNS = 0
    RAW = 1


@dataclass(frozen=True, slots=True)
class EncodedPatches:
    """Patches of distinct chunks: ``rows`` (R,) of dtype ``ROW`` with ``check`` all zero, and their body.

    ``changed`` (R,) uint32: the elements of each that changed, or that were listed. ``count`` says how many
    it writes, which is more where the raw form was taken.
    """

    rows: Rows
    body: Octets
    changed: NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class StagedBits:
    """New bits for elements of R chunks, each chunk once.

    ``chunks`` (R,) of dtype ``CHUNK``. Those of chunk r stand at ``positions[starts[r] : starts[r + 1]]``,
    uint32, strictly ascending, relative to the chunk in row-major order; their new bits, little-endian of the
    array's width, fill ``bits`` from byte ``offsets[r]`` on. ``starts`` and ``offsets`` are int64
    ``(R + 1,)``, and every offset is a multiple of 8. None of them may change while a kernel runs.

    Raises InputError ``wrong_dtype`` for lists of another type or with more than one axis.
    """

    chunks: ChunkList
    starts: NDArray[np.int64]
    positions: NDArray[np.uint32]
    offsets: NDArray[np.int64]
    bits: Octets

    def __post_init__(self) -> None:
        wanted: dict[str, Any] = {
            "chunks": CHUNK,
            "starts": "i8",
            "positions": "u4",
            "offsets": "i8",
            "bits": "u1",
        }
        for name, dtype in wanted.items():
            _check_list(f"{name} of staged bits", getattr(self, name), np.dtype(dtype))

    @classmethod
    def none(cls) -> Self:
        """No chunk at all."""
        zero = np.zeros(1, np.int64)
        return cls(np.zeros(0, CHUNK), zero, np.zeros(0, np.uint32), zero, np.zeros(0, np.uint8))

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        parts = (self.chunks, self.starts, self.positions, self.offsets, self.bits)
        return sum(part.nbytes for part in parts)


@dataclass(frozen=True, slots=True)
class ListedChanges:
    """Elements that changed, by a detector that knows what they were: ``old`` is laid out as ``new.bits``."""

    new: StagedBits
    old: Octets


def check_pack(rows: Rows, body: Octets) -> None:
    """InputError ``wrong_dtype`` unless they are (R,) of dtype ``ROW`` and (n,) of uint8."""
    _check_list("rows", rows, ROW)
    _check_list("a body", body, np.dtype("u1"))


def _check_list(what: str, given: Any, dtype: np.dtype[Any]) -> None:
    if not isinstance(given, np.ndarray) or given.dtype != dtype or given.ndim != 1:
        kind = f"{given.shape} of {given.dtype}" if isinstance(given, np.ndarray) else type(given).__name__
        raise InputError("wrong_dtype", f"{what}: NumPy arrays (n,) of {dtype}, not {kind:.120}")


def chunk_list(arrays: Any, chunks: Any) -> ChunkList:
    """Array and chunk numbers, each ``(n,)``, as one ``(n,)`` of dtype ``CHUNK``."""
    listed = np.empty(len(arrays), CHUNK)
    listed["array"], listed["chunk"] = arrays, chunks
    return listed


def chunks_of(rows: Rows) -> ChunkList:
    """The chunk of every row."""
    return chunk_list(rows["array"], rows["chunk"])


def places_of(chunks: ChunkList | Rows) -> NDArray[np.uint64]:
    """One number for each chunk, or for that of each row, in the order of (array, chunk)."""
    places: NDArray[np.uint64] = (chunks["array"].astype(np.uint64) << np.uint64(32)) | chunks["chunk"]
    return places


def offsets_of(rows: Rows) -> NDArray[np.int64]:
    """Where each patch starts in the body, and where the last one ends: int64 ``(R + 1,)``."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(rows["length"].astype(np.int64))])
