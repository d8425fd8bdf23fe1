"""The snapshot detector: compares live weights with a copy of what was last published.

It costs one copy of the model in memory and needs nothing of the optimizer. It is the fallback where the old
weights cannot be reconstructed, and the oracle that other detectors are tested against.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Self

import numpy as np

from deltastore.detect.difference import compare
from deltastore.detect.nothing import NoWeights
from deltastore.detect.pending import PendingPatches
from deltastore.format.table import TensorTable
from deltastore.kernels.cpu import apply
from deltastore.kernels.pieces import Piece, Pieces
from deltastore.kernels.rows import ChunkList, EncodedPatches
from deltastore.layout.live_parts import HeldBox, LiveParts
from deltastore.layout.parts import slices_at
from deltastore.layout.weights import AnyWeights, Weights, chunks_of, digest_of

__all__ = ["Snapshot"]

Bits = np.ndarray[Any, Any]


class _Copy:
    """A model-sized copy of weights, one ndarray per array: the one place where that is the purpose."""

    def __init__(self, table: TensorTable) -> None:
        self.table = table
        self.arrays = [np.empty(array.grid.extent, array.element.storage) for array in table.arrays]
        self.pieces = Pieces(
            table.kernels,
            (
                Piece(number, member, (0,) * (copy.ndim - 1), copy[(member, ...)])
                for number, copy in enumerate(self.arrays)
                for member in range(len(copy))
            ),
        )

    async def read(self, array: int, chunk: int) -> Bits:
        box = self.table.arrays[array].grid.box(chunk)
        return self.arrays[array][box.slices]

    def of(self, part: int, box: HeldBox) -> Bits:  # noqa: ARG002
        member: Bits = self.arrays[box.array][(box.member, ...)]
        bits: Bits = member[slices_at(box.lo, box.size, (0,) * len(box.lo))]
        return bits

    async def take(self, live: Weights) -> None:
        async for array, _, box, bits in chunks_of(live):
            self.arrays[array][box.slices] = bits


class _PartCopy:
    """A copy of the parts that this process holds, one ndarray per part."""

    def __init__(self, live: LiveParts) -> None:
        self._live = live
        self.table = live.table
        self.chunks = live.chunks
        self.boxes = live.boxes
        storages = [array.element.storage for array in live.table.arrays]
        self.copies = [np.empty(box.size, storages[box.array]) for box in live.boxes]
        self.pieces = Pieces(
            live.table.kernels,
            (
                Piece(box.array, box.member, box.lo, copy)
                for box, copy in zip(live.boxes, self.copies, strict=True)
            ),
        )

    async def gather(self, chunks: ChunkList) -> Pieces:  # noqa: ARG002
        return self.pieces

    async def read(self, array: int, chunk: int) -> Bits:
        """One chunk; of use where the parts are together the whole model."""
        return self._live.assemble(array, chunk, self.of)

    def of(self, part: int, box: HeldBox) -> Bits:
        bits: Bits = self.copies[part][slices_at(box.lo, box.size, self.boxes[part].lo)]
        return bits

    async def take(self, live: LiveParts) -> None:
        live.fill(self.copies)


class Snapshot:
    """Finds what changed in ``live`` since the last committed round, with ``threads`` threads.

    Between a round and its commit only its patches are kept beside the copy, so weights that move on
    meanwhile cannot leak into it.
    """

    name = "snapshot"
    holds_copy = True
    findings = None

    def __init__(self, live: Weights | LiveParts, *, threads: int = 1) -> None:
        self._live = live
        self._threads = threads
        self._copy: _Copy | _PartCopy = _PartCopy(live) if isinstance(live, LiveParts) else _Copy(live.table)
        self._pending = PendingPatches()

    @classmethod
    async def of(cls, live: Weights | LiveParts, *, threads: int = 1) -> Self:
        """A detector for which the weights as they are now count as published."""
        detector = cls(live, threads=threads)
        await detector.retake()
        return detector

    @property
    def published(self) -> AnyWeights:
        """The copy."""
        return self._copy

    @property
    def whole(self) -> Weights:
        """The copy, where it is of the whole model."""
        return self._copy

    async def retake(self) -> None:
        """Copy the live weights as they are now; a round before that is forgotten."""
        self._pending.clear()
        await self._copy.take(self._live)  # type: ignore[arg-type]

    async def changes(self) -> AsyncGenerator[EncodedPatches]:
        """Everything that differs from the copy, in pack order."""
        self._pending.clear()
        async for patches in compare(self._live, self._copy, threads=self._threads):
            self._pending.add(patches)
            yield patches
            del patches  # else it would be there beside the next one

    def everything(self) -> AsyncGenerator[EncodedPatches]:
        """The copy, as patches on zero bits."""
        return compare(self._copy, NoWeights(self._copy.table), threads=self._threads)

    async def digest(self) -> int:
        """The digest of the copy, mod 2**64."""
        return await digest_of(self._copy, threads=self._threads)

    def copied(self, part: int, box: HeldBox) -> Bits:
        """The copy's bits of a box of part number ``part`` (of a whole model: of any tensor)."""
        return self._copy.of(part, box)

    async def unchanged(self) -> bool:
        """Whether the live weights are those of the copy; reads on until something differs."""
        async for _ in compare(self._live, self._copy, threads=self._threads):
            return False
        return True

    def committed(self) -> None:
        """Bring the copy up to the round that was published."""
        for rows, body in self._pending:
            apply(self._copy.pieces, rows, body, threads=self._threads)
        self._pending.clear()

    def aborted(self) -> None:
        """Forget the round; the copy still holds what is published."""
        self._pending.clear()

    def close(self) -> None:
        """Nothing to give up."""
