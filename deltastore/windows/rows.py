"""Index rows of many deltas, sorted by window in a temporary file.

Memory: what is sorted at a time. The file has 60 bytes for each row that is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from deltastore.format.pack import PackIndex
from deltastore.kernels.rows import ROW, Rows, places_of
from deltastore.windows.cutting import Window
from deltastore.windows.spill_file import SpillFile

__all__ = ["PLACED", "RowFile", "placed_rows", "plain_rows"]

PLACED: Final = np.dtype([("step", "<u4"), ("pack", "<u4"), ("offset", "<u8"), *ROW.descr])
"""An index row with the step that its delta is, the number of its pack there, and its patch's place in it."""

SORTED_ROWS: Final = 1 << 17
"""So many are sorted at a time: 8 MB, and as much again meanwhile."""

_READ_ROWS: Final = 1 << 13


def placed_rows(step: int, pack: int, rows: Rows, offsets: NDArray[np.int64]) -> Rows:
    """Index rows (n,) of a pack as they stand here, of dtype ``PLACED``; ``offsets``: of their patches."""
    placed = np.empty(len(rows), PLACED)
    placed["step"], placed["pack"], placed["offset"] = step, pack, offsets
    for name in ROW.names or ():
        placed[name] = rows[name]
    return placed


def plain_rows(placed: Rows) -> Rows:
    """The rows as kernels take them, (n,) of dtype ``ROW``."""
    rows = np.empty(len(placed), ROW)
    for name in ROW.names or ():
        rows[name] = placed[name]
    return rows


class RowFile:
    """Rows by window. ``add`` all of them in the order of steps, then ``seal``, then take them. Close it.

    ``chosen``: rows of other chunks than those of ``windows`` may come, and are left out.
    """

    def __init__(self, windows: Sequence[Window], *, chosen: bool) -> None:
        self._lasts = np.array([window.last for window in windows], np.uint64)
        self._chosen = (
            np.concatenate([np.zeros(0, np.uint64), *(places_of(window.chunks) for window in windows)])
            if chosen
            else None
        )
        self._waiting: list[Rows] = []
        self._count = 0
        self._runs: list[tuple[int, int]] = []
        self._file = SpillFile()

    def add(self, step: int, pack: int, index: PackIndex) -> None:
        """The rows of one pack; steps and packs ascend from call to call."""
        for start in range(0, len(index.rows), SORTED_ROWS):
            rows = index.rows[start : start + SORTED_ROWS]
            offsets = index.offsets[start : start + len(rows)]
            if self._chosen is not None:
                mine = self._is_chosen(places_of(rows))
                rows, offsets = rows[mine], offsets[mine]
            self._waiting.append(placed_rows(step, pack, rows, offsets))
            self._count += len(rows)
            if self._count >= SORTED_ROWS:
                self._flush()

    def seal(self) -> None:
        """No more rows come."""
        self._flush()

    def of(self, window: int) -> Iterator[Rows]:
        """The rows of a window, (n,) of dtype ``PLACED``, a few thousand at a time.

        They come in the order of steps and packs, and of one pack in the order of its patches.
        """
        for start, bounds in self._runs:
            first, end = np.frombuffer(self._file.read(16, bounds + 8 * window), "<i8").tolist()
            for at in range(first, end, _READ_ROWS):
                count = min(_READ_ROWS, end - at)
                data = self._file.read(count * PLACED.itemsize, start + at * PLACED.itemsize)
                yield np.frombuffer(data, PLACED)

    def close(self) -> None:
        """Give the file back; may be called more than once."""
        self._file.close()

    def _is_chosen(self, places: NDArray[np.uint64]) -> NDArray[np.bool_]:
        known = self._chosen
        if known is None or not len(known):
            return np.zeros(len(places), np.bool_)
        found = np.minimum(np.searchsorted(known, places), len(known) - 1)
        return np.asarray(known[found] == places, np.bool_)

    def _flush(self) -> None:
        if not self._count:
            self._waiting.clear()
            return
        rows = np.concatenate(self._waiting)
        self._waiting.clear()
        self._count = 0
        windows = np.searchsorted(self._lasts, places_of(rows))
        order = np.argsort(windows, kind="stable")
        bounds = np.searchsorted(windows[order], np.arange(len(self._lasts) + 1)).astype("<i8")
        start = self._file.append(rows[order])
        self._runs.append((start, self._file.append(bounds)))
