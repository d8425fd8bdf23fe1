"""A checkpoint as weights: the bits of any chunk, read by position."""

from __future__ import annotations

import functools

import numpy as np

from deltastore.checkpoints.blocking import blocking
from deltastore.checkpoints.checkpoint import Checkpoint
from deltastore.checkpoints.runs import box_runs
from deltastore.format.table import TensorTable
from deltastore.kernels.grid import Box
from deltastore.layout.fitting import check_tensors
from deltastore.layout.weights import Bits

__all__ = ["CheckpointWeights"]


class CheckpointWeights:
    """The weights of a checkpoint under a table. Memory: one chunk. The checkpoint must stay open.

    Raises ``InputError`` if the checkpoint's tensors are not exactly the table's: ``unknown_tensor``,
    ``missing_tensor``, ``wrong_shape``, ``wrong_dtype``.
    """

    def __init__(self, checkpoint: Checkpoint, table: TensorTable) -> None:
        check_tensors(table, checkpoint.tensors)
        self._checkpoint = checkpoint
        self._table = table

    @property
    def table(self) -> TensorTable:
        """The tensors and how they are cut."""
        return self._table

    async def read(self, array: int, chunk: int) -> Bits:
        """One chunk, shape ``box.size``; ``InputError("bad_checkpoint")`` if a file was cut short meanwhile.

        The file work blocks, so it runs in the event loop's default thread pool.
        """
        box = self._table.arrays[array].grid.box(chunk)
        return await blocking(functools.partial(self._read, array, box))

    def _read(self, array: int, box: Box) -> Bits:
        spec = self._table.arrays[array]
        runs = box_runs(spec.shape, box.start[1:], box.size[1:])
        itemsize = spec.element.itemsize
        out = np.empty(box.size, dtype=spec.element.storage)
        rows = out.reshape(box.size[0], len(runs.starts), runs.length).view(np.uint8)
        for member in range(box.size[0]):
            file, tensor = self._checkpoint.locate(spec.names[box.start[0] + member])
            for run, start in enumerate(runs.starts.tolist()):
                file.read_into(rows[member, run], tensor, start * itemsize)
        return out
