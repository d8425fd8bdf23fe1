"""Targets in the memory of the CPU: new bits are worked out ahead, and the pause is one scatter of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import CorruptError, InputError
from deltastore.format.records import DeltaRecord, record_key
from deltastore.format.table import TensorTable
from deltastore.kernels.cpu import digest_chunks, merge, mismatches, resolve, scatter
from deltastore.kernels.grid import Box
from deltastore.kernels.pieces import Pieces
from deltastore.kernels.rows import ChunkList, Octets, Rows, StagedBits
from deltastore.layout.memory import LiveTensors
from deltastore.layout.piece_memory import write_box
from deltastore.layout.pieces import Layout
from deltastore.reader.apart import check_apart, tied_groups
from deltastore.reader.held import live_targets, shard_of
from deltastore.reader.tied import check_tied

__all__ = ["HostStep", "HostTargets"]

Bits = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class HostStep:
    """New bits, ready to be written: six bytes for each BF16 element."""

    targets: HostTargets
    new: StagedBits

    @property
    def changed(self) -> int:
        """Elements that it writes."""
        return len(self.new.positions)

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        return self.new.nbytes

    def write(self) -> None:
        """Write every element."""
        self.targets.scatter(self.new)

    def mismatches(self) -> int:
        """How many elements in memory are not what was written."""
        return self.targets.mismatches(self.new)


class HostTargets:
    """Tensors of the table, or their parts in parameters, in the memory of the CPU; see ``Targets``."""

    merges = True

    def __init__(
        self, table: TensorTable, tensors: LiveTensors, *, threads: int = 1, layout: Layout | None = None
    ) -> None:
        self.weights = live_targets(table, tensors, layout)
        pieces = self.weights.pieces
        if pieces is None:
            raise InputError("wrong_memory", "tensors stand partly on a GPU: give all of them in one memory")
        self.pieces: Pieces = pieces
        check_apart(self.weights)
        self.tied = tied_groups(self.weights)
        self.shard = shard_of(self.weights)
        self._table = table
        self._threads = threads

    def resolve(
        self, rows: Rows, body: Octets, under: HostStep | None
    ) -> tuple[HostStep, NDArray[np.uint64]]:
        """Work out the new bits of one pack; see ``Targets``."""
        known = None if under is None else under.new
        new, differences = resolve(self.pieces, rows, body, known, threads=self._threads)
        return HostStep(self, new), differences

    def join(self, parts: Sequence[HostStep], under: HostStep | None, record: DeltaRecord) -> HostStep:
        """The packs of a version as one step; see ``Targets``."""
        step = self._together([part.new for part in parts], record)
        if under is not None:
            step, _ = merge(self._table.kernels, under.new, step, threads=self._threads)
        check_tied(self._table, self.pieces, self.tied, step, record)
        return HostStep(self, step)

    def _together(self, parts: list[StagedBits], record: DeltaRecord) -> StagedBits:
        while len(parts) > 1:
            merged = []
            for first, second in zip(parts[::2], parts[1::2], strict=False):
                both, overlaps = merge(self._table.kernels, first, second, threads=self._threads)
                if overlaps:
                    where = record_key(record.slot)
                    message = f"{where}: two writers patch one element"
                    raise CorruptError("bad_patch", message, where=where, rule="DS045")
                merged.append(both)
            parts = merged + parts[len(merged) * 2 :]
        return parts[0] if parts else StagedBits.none()

    def scatter(self, new: StagedBits) -> None:
        """Write new bits."""
        scatter(self.pieces, new, threads=self._threads)

    def mismatches(self, new: StagedBits) -> int:
        """How many elements in memory are not those that ``scatter`` writes."""
        return mismatches(self.pieces, new, threads=self._threads)

    def write(self, array: int, box: Box, bits: Bits) -> None:
        """Write a whole chunk."""
        write_box(self.pieces, array, box, bits)

    def digests(self, chunks: ChunkList) -> NDArray[np.uint64]:
        """The digest of what is held of each chunk; see ``Targets``."""
        pieces = self.pieces if self.shard is None else self.shard.once
        return digest_chunks(pieces, chunks, threads=self._threads)
