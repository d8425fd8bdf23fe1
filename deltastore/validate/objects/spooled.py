"""More rows than memory holds, in the order of their keys: sorted runs of them in a temporary file.

Memory: about four times ``RUN_ROWS`` rows, and some keys. The file has ``PLACED_BYTES`` for each row; up to
``RUN_ROWS`` there is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from deltastore.windows.spill_file import SpillFile

__all__ = ["PLACED", "PLACED_BYTES", "RUN_ROWS", "SpooledRows"]

PLACED: Final = np.dtype(
    [
        ("key", "<u8"),
        ("offset", "<u8"),
        ("pack", "<u4"),
        ("length", "<u4"),
        ("encoding", "<u4"),
        ("check", "V16"),
    ]
)
"""Of an index row: where its chunk stands in the order of packs, its pack, and its patch's place there."""

PLACED_BYTES: Final = PLACED.itemsize

RUN_ROWS: Final = 1 << 16

_LEAST_STEP: Final = 64
_MOST_KEYS: Final = 1 << 18
"""Keys that are kept: of every 64th row, or of fewer."""

PlacedRows = np.ndarray[Any, Any]


class SpooledRows:
    """``total`` rows: ``add`` all of them, then take them once in ``parts``. Close it."""

    def __init__(self, total: int, *, run: int = RUN_ROWS) -> None:
        self._run = run
        self._step = max(min(_LEAST_STEP, run), total // _MOST_KEYS)
        self._waiting: list[PlacedRows] = []
        self._count = 0
        self._only: PlacedRows | None = None
        self._runs: list[tuple[int, int, NDArray[np.uint64]]] = []
        """(where it starts in the file, rows, key of every ``_step``-th row) of each run."""
        self._file = SpillFile() if total > run else None

    def close(self) -> None:
        """Give the file back; may be called more than once."""
        if self._file is not None:
            self._file.close()

    def add(self, rows: PlacedRows) -> None:
        """Some rows (n,) of dtype ``PLACED``, n at most ``run``, in any order."""
        self._waiting.append(rows)
        self._count += len(rows)
        if self._file is not None and self._count >= self._run:
            self._flush(self._file)

    def parts(self) -> Iterator[PlacedRows]:
        """All rows, about ``run`` at a time, by key, and those of a key as they were added."""
        if self._file is None:
            yield _sorted(self._waiting)
            return
        if self._count:
            self._flush(self._file)
        keys = np.sort(np.concatenate([keys for _, _, keys in self._runs]))
        bounds = np.unique(keys[:: max(self._run // self._step, 1)])
        for number, low in enumerate(bounds.tolist()):
            high = int(bounds[number + 1]) if number + 1 < len(bounds) else None
            yield _sorted([self._between(self._file, run, low, high) for run in self._runs])

    def _flush(self, file: SpillFile) -> None:
        rows = _sorted(self._waiting)
        self._waiting.clear()
        self._count = 0
        self._runs.append((file.append(rows), len(rows), rows["key"][:: self._step].copy()))

    def _between(
        self, file: SpillFile, run: tuple[int, int, NDArray[np.uint64]], low: int, high: int | None
    ) -> PlacedRows:
        """The rows of a run with keys in ``[low, high)``."""
        start, count, keys = run
        first = max(int(np.searchsorted(keys, np.uint64(low))) - 1, 0) * self._step
        last = count
        if high is not None:
            last = min(int(np.searchsorted(keys, np.uint64(high))) * self._step, count)
        if last <= first:
            return np.zeros(0, PLACED)
        data = file.read((last - first) * PLACED_BYTES, start + first * PLACED_BYTES)
        rows = np.frombuffer(data, PLACED)
        inside = rows["key"] >= np.uint64(low)
        if high is not None:
            inside &= rows["key"] < np.uint64(high)
        return rows[inside]


def _sorted(blocks: list[PlacedRows]) -> PlacedRows:
    rows = np.concatenate([np.zeros(0, PLACED), *blocks])
    return np.asarray(rows[np.argsort(rows["key"], kind="stable")])
