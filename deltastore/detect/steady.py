"""Live weights that are stored whole while nobody may change them, and are held to that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltastore.detect.batch import Batch
from deltastore.errors import InputError
from deltastore.format.digest import MODULUS
from deltastore.format.table import TensorTable
from deltastore.kernels.cpu import digest_chunks
from deltastore.kernels.pieces import Pieces
from deltastore.kernels.rows import chunk_list
from deltastore.layout.live_parts import LiveParts

__all__ = ["SteadyWeights", "moved"]

Bits = np.ndarray[Any, Any]


class SteadyWeights:
    """``live``, which is all of a model, chunk by chunk; InputError when one has not its digest any more.

    ``certificate`` (blocks,): the digests that were taken when the weights were looked at.
    """

    def __init__(self, live: LiveParts, batches: Sequence[Batch], certificate: NDArray[np.uint64]) -> None:
        self._live = live
        self._digests: dict[tuple[int, int], int] = {}
        for batch in batches:
            for of in batch.boxes:
                place = of.box.array, of.chunk
                added = int(certificate[slice(*of.blocks)].sum(dtype=np.uint64))
                self._digests[place] = (self._digests.get(place, 0) + added) % MODULUS

    @property
    def table(self) -> TensorTable:
        """The tensors and how they are cut."""
        return self._live.table

    async def read(self, array: int, chunk: int) -> Bits:
        """The chunk's bits, in memory of their own."""
        bits = self._live.assemble(array, chunk, lambda part, box: self._live.parts[part].within(box))
        pieces = Pieces.of_chunks(self.table.kernels, [(array, chunk, bits)])
        digest = int(digest_chunks(pieces, chunk_list([array], [chunk]))[0])
        if digest != self._digests[array, chunk]:
            raise moved()
        return bits


def moved() -> InputError:
    """The error for weights that somebody changed while they were being published."""
    return InputError(
        "wrong_memory", "the weights changed while they were being published: nothing was; publish again"
    )
