"""Targets on a GPU: packs are uploaded and checked ahead, and the pause is one kernel over each.

Patches are decoded on the device straight from the pack, against what stands there. So deltas are written one
after another, each in a pause of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import CorruptError, InputError
from deltastore.format.records import DeltaRecord, record_key
from deltastore.format.table import TensorTable
from deltastore.kernels.cpu import resolve
from deltastore.kernels.grid import Box
from deltastore.kernels.pieces import Pieces
from deltastore.kernels.reference.staged import merge
from deltastore.kernels.rows import CHUNK, ChunkList, Octets, Rows, StagedBits, chunks_of, offsets_of
from deltastore.kernels.triton import DevicePack, apply, check, digest_chunks, mismatches
from deltastore.layout.batches import HELD_BYTES, chunk_batches
from deltastore.layout.memory import LiveTensors
from deltastore.layout.piece_memory import copied_chunk, write_box
from deltastore.layout.pieces import Layout
from deltastore.reader.apart import check_apart, tied_groups
from deltastore.reader.held import live_targets, shard_of
from deltastore.reader.tied import check_tied

__all__ = ["GpuStep", "GpuTargets"]

Bits = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class GpuStep:
    """Packs on the device, checked; ``packs`` with the rows and bodies that they were made of."""

    packs: tuple[tuple[DevicePack, Rows, Octets], ...]

    @property
    def changed(self) -> int:
        """Elements that it writes."""
        return sum(int(rows["count"].sum(dtype=np.uint64)) for _, rows, _ in self.packs)

    @property
    def nbytes(self) -> int:
        """Memory that it takes, on the device and beside it."""
        return sum(len(body) for _, _, body in self.packs)

    def write(self) -> None:
        """Write every pack, on the current stream."""
        for pack, _, _ in self.packs:
            apply(pack)

    def mismatches(self) -> int:
        """How many elements in memory are not what was written; waits for the device."""
        return sum(mismatches(pack) for pack, _, _ in self.packs)


class GpuTargets:
    """Tensors of the table, or their parts in parameters, in the memory of one GPU; see ``Targets``."""

    merges = False

    def __init__(
        self, table: TensorTable, tensors: LiveTensors, *, threads: int = 1, layout: Layout | None = None
    ) -> None:
        self.weights = live_targets(table, tensors, layout)
        pieces = self.weights.device_pieces
        if pieces is None:
            raise InputError(
                "wrong_memory", "tensors stand on several devices: give all of them in one memory"
            )
        self._pieces: Pieces = pieces
        check_apart(self.weights)
        self.tied = tied_groups(self.weights)
        self.shard = shard_of(self.weights)
        self._table = table
        self._threads = threads

    def resolve(self, rows: Rows, body: Octets, under: GpuStep | None) -> tuple[GpuStep, NDArray[np.uint64]]:
        """Upload and check one pack; see ``Targets``."""
        if under is not None:
            raise ValueError("a delta on one that is not written yet")
        pack = DevicePack(self._pieces, rows, body, threads=self._threads)
        return GpuStep(((pack, rows, body),)), check(pack)

    def join(self, parts: Sequence[GpuStep], under: GpuStep | None, record: DeltaRecord) -> GpuStep:
        """The packs of a version as one step; see ``Targets``."""
        if under is not None:
            raise ValueError("a delta on one that is not written yet")
        step = GpuStep(tuple(pack for part in parts for pack in part.packs))
        self._check_overlaps(step, record)
        if self.tied:
            arrays = [array for group in self.tied for array, _ in group]
            chunks = [rows[np.isin(rows["array"], arrays)] for _, rows, _ in step.packs]
            new, _ = self._on_host(step, np.concatenate([chunks_of(rows) for rows in chunks]))
            check_tied(self._table, self._pieces, self.tied, new, record)
        return step

    def _check_overlaps(self, step: GpuStep, record: DeltaRecord) -> None:
        listed = np.concatenate([np.zeros(0, CHUNK), *(chunks_of(rows) for _, rows, _ in step.packs)])
        chunks, times = np.unique(listed, return_counts=True)
        _, overlaps = self._on_host(step, chunks[times > 1])
        if overlaps:
            where = record_key(record.slot)
            message = f"{where}: two writers patch one element"
            raise CorruptError("bad_patch", message, where=where, rule="DS045")

    def _on_host(self, step: GpuStep, chunks: Any) -> tuple[StagedBits, int]:
        """The new bits of a few chunks, worked out beside the device, and how many stand in two packs."""
        together, overlaps = StagedBits.none(), 0
        for _, rows, body in step.packs:
            offsets = offsets_of(rows)
            for number in np.flatnonzero(np.isin(chunks_of(rows), chunks)).tolist():
                row = rows[number : number + 1]
                held = copied_chunk(self._pieces, int(row["array"][0]), int(row["chunk"][0]))
                new, _ = resolve(held, row, body[offsets[number] : offsets[number + 1]])
                together, twice = merge(self._table.kernels, together, new)
                overlaps += twice
        return together, overlaps

    def write(self, array: int, box: Box, bits: Bits) -> None:
        """Write a whole chunk."""
        write_box(self._pieces, array, box, bits)

    def digests(self, chunks: ChunkList) -> NDArray[np.uint64]:
        """The digest of what is held of each chunk, worked out on the device; see ``Targets``."""
        pieces = self._pieces if self.shard is None else self.shard.once
        parts = [np.zeros(0, np.uint64)]
        parts += [digest_chunks(pieces, some) for some in chunk_batches(self._table, chunks, HELD_BYTES)]
        return np.concatenate(parts)
