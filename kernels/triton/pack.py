"""A pack on the device: checked, uploaded and cut into tasks before the engine pauses."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from deltastore.errors import PatchError
from deltastore.kernels.cpu import check
from deltastore.kernels.pieces import Pieces
from deltastore.kernels.rows import REASONS, RULE_OF, Octets, Rows, chunks_of, offsets_of
from deltastore.kernels.triton.count_ones import ones_before
from deltastore.kernels.triton.runs import elements_of, run_table
from deltastore.kernels.triton.tables import ELEMENT_TYPES, ROW_WIDTH
from deltastore.kernels.triton.upload import SideStream, Staged, side_stream
from deltastore.kernels.triton.weights import weight_table
from deltastore.kernels.triton.windows import windows_of

__all__ = ["DevicePack"]


class DevicePack:
    """Patches of distinct chunks, uploaded once, for the pieces of one device.

    ``rows`` (R,) of dtype ``ROW`` and their ``body``; both are copied, and what is checked is the copy that
    is uploaded. Upload and preparation run on a stream of their own. Device memory: the body, 4 bytes for
    every 1024 bits of high section, about 250 bytes a chunk and 88 a window.

    Raises PatchError for the first row that breaks a rule (DS030 to DS034), InputError ``wrong_memory`` for
    pieces that are not torch tensors of integers on one device.
    """

    def __init__(self, pieces: Pieces, rows: Rows, body: Octets, *, threads: int = 1) -> None:
        self.pieces = pieces
        self.rows = rows.copy()
        self.fits = False
        """Whether ``check`` has found that the patches fit the weights."""
        self._stream = side_stream(pieces)
        size = int(offsets_of(self.rows)[-1])
        if size > len(body):
            number = int(np.searchsorted(offsets_of(self.rows)[1:], len(body), side="right"))
            check(pieces.table, self.rows[:number], body, threads=threads)
            raise PatchError(number, REASONS[1], RULE_OF[REASONS[1]])
        staged = Staged(self._stream.device, [body[:size]])
        with self._stream.entered():
            octets = staged.start()[0]
        check(pieces.table, self.rows, staged.host[0], threads=threads)
        self._prepare(staged.host[0], octets)

    def _prepare(self, body: Octets, octets: torch.Tensor) -> None:
        chunks = chunks_of(self.rows)
        windows = windows_of(self.pieces, chunks)
        plan = run_table(self.pieces.table, self.rows, body)
        floating = np.array([array.floating for array in self.pieces.table.arrays], np.int64)
        row_table = np.zeros((len(chunks), ROW_WIDTH.value), np.int64)
        row_table[:, 0] = floating[chunks["array"]]
        row_table[:, 1], row_table[:, 2] = windows.first[:-1], windows.first[1:]
        row_table[:, 3] = elements_of(self.pieces.table, chunks)
        tables = Staged(
            self._stream.device,
            [row_table, windows.windows, windows.axes, plan.runs, plan.task_runs, weight_table()],
        )
        self.groups = plan.groups
        with self._stream.entered():
            self.row_table, self.windows, self.axes, self.runs, self.task_runs, self.weights = tables.start()
            self.body = octets.view(torch.int32)
            self.before = ones_before(self.body, self.runs, self.task_runs)
        self._ready = self._stream.mark()

    @property
    def stream(self) -> SideStream:
        """Where the pack was prepared."""
        return self._stream

    def launch(self, kernel: Any, *results: torch.Tensor) -> None:
        """Run a kernel over every task of the pack, on the current stream.

        ``results``: what it takes between the tables of the pack and the number of its first task.
        """
        for group in self.groups:
            narrow, wide, _ = ELEMENT_TYPES[group.itemsize]
            kernel[(group.count,)](
                self.body,
                self.row_table,
                self.windows,
                self.axes,
                self.runs,
                self.task_runs,
                self.before,
                *results,
                group.first,
                raw=group.raw,
                bits=group.itemsize * 8,
                narrow=narrow,
                wide=wide,
            )

    def hand_over(self) -> None:
        """Make the current stream wait until everything is on the device."""
        used = (self.body, self.row_table, self.windows, self.axes, self.runs, self.task_runs, self.before)
        self._stream.hand_over(self._ready, used)
