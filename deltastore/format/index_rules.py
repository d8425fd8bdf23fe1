"""The rules of a pack's index rows (SPEC section "Pack"), for rows that come block by block.

What a pack holds may be too much for memory at once; an index of 2**22 rows has 184 MB.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import CorruptError
from deltastore.format.limits import PATCH_SLACK
from deltastore.format.table import TensorTable
from deltastore.kernels.rows import ROW, Encoding, Rows, chunks_of

__all__ = ["HEADER_BYTES", "IndexRules"]

HEADER_BYTES: Final = 64
"""Before the first row."""

_BODY_AT: Final = 40
"""Where the header says how long all patches are together."""

Wrong = NDArray[np.bool_]
Keys = NDArray[np.int64]


class IndexRules:
    """Checks all rows of one pack, called ``where``, in order. ``rows`` and ``body`` are those of its header.

    ``count`` and ``difference`` are the sums of those of the rows so far, the latter mod 2**64; ``first`` and
    ``last`` are (slab, array, chunk) of the first and the last one.
    """

    def __init__(self, table: TensorTable, where: str, rows: int, body: int) -> None:
        self._table = table
        self._where = where
        self._rows = rows
        self._body = body
        self._seen = 0
        self._length = 0
        self.count = 0
        self.difference = 0
        self.first: tuple[int, ...] = ()
        self.last: tuple[int, ...] = ()

    def add(self, rows: Rows) -> None:
        """Check the next rows, one or more, of dtype ``ROW``.

        Raises ``CorruptError("bad_index")`` with rule, offset and, where it is known, the pattern.
        """
        self._length += int(rows["length"].sum(dtype=np.uint64))
        if self._seen + len(rows) == self._rows and self._length != self._body:
            self._refuse("DS040", "the patch lengths do not add up to the body", _BODY_AT)
        for rule, problem, field, wrong in self._problems(rows):
            bad = np.flatnonzero(wrong)
            if len(bad):
                row = int(bad[0])
                at = HEADER_BYTES + (self._seen + row) * ROW.itemsize + _offset(field)
                self._refuse(rule, problem, at, self._pattern(rows[row]))
        self._seen += len(rows)
        self.count += int(rows["count"].sum(dtype=np.uint64))
        self.difference = (self.difference + int(rows["difference"].sum(dtype=np.uint64))) % (1 << 64)

    def _problems(self, rows: Rows) -> Iterator[tuple[str, str, str, Wrong]]:
        """What may be wrong, most basic first, and with which rows; later ones rely on earlier ones."""
        length = rows["length"]
        odd = (length % 4 != 0) | (length == 0)
        yield "DS041", "a patch length is no positive multiple of 4", "length", odd
        yield "DS041", "a patch encoding is not known", "encoding", rows["encoding"] > max(Encoding)
        arrays = self._table.arrays
        yield "DS041", "an array number is out of range", "array", rows["array"] >= len(arrays)
        chunks, elements, sizes = self._chunk_facts(rows)
        yield "DS041", "a chunk number is out of range", "chunk", rows["chunk"] >= chunks
        count = rows["count"].astype(np.int64)
        yield "DS041", "a changed count is out of range", "count", (count < 1) | (count > elements)
        raw = rows["encoding"] == Encoding.RAW
        yield "DS043", "a raw patch has the wrong size", "length", raw & (length != -(-sizes // 4) * 4)
        yield "DS043", "a raw patch has the wrong size", "count", raw & (count != elements)
        yield "DS043", "a patch is far longer than its chunk", "length", length > 2 * sizes + PATCH_SLACK
        keys = _keys_of(self._table, rows)
        before = np.concatenate([np.array([self.last or (-1, -1, -1)], np.int64), keys[:-1]])
        yield "DS042", "the rows are not in order, or name a chunk twice", "array", _not_above(keys, before)
        self.first = self.first or tuple(keys[0].tolist())
        self.last = tuple(keys[-1].tolist())

    def _chunk_facts(self, rows: Rows) -> tuple[Keys, Keys, Keys]:
        """For each row: chunks of its array, and elements and bytes of its chunk (0 where it has none)."""
        chunks, elements, sizes = (np.zeros(len(rows), np.int64) for _ in range(3))
        for number, mine in _by_array(rows["array"]):
            array = self._table.arrays[number]
            wanted = rows["chunk"][mine].astype(np.int64)
            chunks[mine] = len(array.grid)
            there = mine[wanted < len(array.grid)]
            elements[there] = array.grid.elements(rows["chunk"][there].astype(np.int64))
            sizes[there] = elements[there] * array.element.itemsize
        return chunks, elements, sizes

    def _pattern(self, row: Any) -> str | None:
        number = int(row["array"])
        return self._table.arrays[number].pattern if number < len(self._table.arrays) else None

    def _refuse(self, rule: str, problem: str, offset: int, tensor: str | None = None) -> NoReturn:
        of = "" if tensor is None else f", of {tensor}"
        message = f"{self._where}: {problem} at byte {offset}{of}"
        raise CorruptError("bad_index", message, where=self._where, rule=rule, offset=offset, tensor=tensor)


def _keys_of(table: TensorTable, rows: Rows) -> Keys:
    """(slab, array, chunk) of each row, whose numbers are in range: int64 ``(n, 3)``."""
    keys = np.empty((len(rows), 3), np.int64)
    keys[:, 0] = table.slabs_of(chunks_of(rows))
    keys[:, 1], keys[:, 2] = rows["array"], rows["chunk"]
    return keys


def _not_above(keys: Keys, others: Keys) -> Wrong:
    """Which of ``(n, 3)`` keys are at or before those of ``others``, ``(n, 3)`` or one for all."""
    found = np.ones(len(keys), np.bool_)
    for axis in (2, 1, 0):
        mine, other = keys[:, axis], others[..., axis]
        found = (mine < other) | ((mine == other) & found)
    return found


def _offset(field: str) -> int:
    fields: Any = ROW.fields
    return int(fields[field][1])


def _by_array(numbers: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Each array number that occurs, with the places of its rows. O(n log n), however many arrays occur."""
    order = np.argsort(numbers, kind="stable")
    found, starts = np.unique(numbers[order], return_index=True)
    yield from zip(found.tolist(), np.split(order, starts[1:]), strict=True)
