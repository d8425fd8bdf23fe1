"""The patches of a round whose outcome is not known yet: kept on disk once they are many."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Final

import numpy as np

from deltastore.kernels.rows import ROW, EncodedPatches, Octets, Rows

__all__ = ["IN_MEMORY_BYTES", "PendingPatches"]

IN_MEMORY_BYTES: Final = 4 << 20
"""A round up to this size stays in memory; what a larger one has goes to an unnamed temporary file."""


@dataclass(frozen=True, slots=True)
class _Batch:
    rows: int
    body: int


class PendingPatches:
    """Batches of patches, to be had again in order. An unnamed file vanishes with the process."""

    def __init__(self) -> None:
        self._batches: list[_Batch] = []
        self._held: list[bytes] = []
        self._file: IO[bytes] | None = None

    def add(self, patches: EncodedPatches) -> None:
        """Keep a copy of a batch. Raises ``OSError`` when the temporary folder is full."""
        more = patches.rows.nbytes + patches.body.nbytes
        if self._file is None and sum(map(len, self._held)) + more > IN_MEMORY_BYTES:
            self._spill()
        if self._file is None:
            self._held += patches.rows.tobytes(), patches.body.tobytes()
        else:
            self._file.write(patches.rows.view(np.uint8).data)
            self._file.write(patches.body.data)
        self._batches.append(_Batch(len(patches.rows), len(patches.body)))

    def _spill(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        # A writer may be dropped while the outcome of its last version is unknown.
        self._close = weakref.finalize(self, self._file.close)
        self._file.writelines(self._held)
        self._held = []

    def __iter__(self) -> Iterator[tuple[Rows, Octets]]:
        """(rows, body) of every batch, one in memory at a time."""
        if self._file is not None:
            self._file.seek(0)
        held = iter(self._held)
        for batch in self._batches:
            parts = batch.rows * ROW.itemsize, batch.body
            rows, body = (next(held) if self._file is None else self._file.read(size) for size in parts)
            yield np.frombuffer(rows, ROW), np.frombuffer(body, np.uint8)

    def clear(self) -> None:
        """Forget everything."""
        self._batches, self._held = [], []
        if self._file is not None:
            self._close()
            self._file = None
