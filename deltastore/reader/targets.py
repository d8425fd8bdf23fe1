"""Live tensors that a reader writes into, in whatever memory they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from deltastore.format.records import DeltaRecord
from deltastore.kernels.grid import Box
from deltastore.kernels.rows import ChunkList, Octets, Rows
from deltastore.layout.live_shard import LiveShard
from deltastore.reader.held import HeldWeights
from deltastore.reader.tied import Place

__all__ = ["Step", "Targets"]

Bits = np.ndarray[Any, Any]


class Step(Protocol):
    """New bits, or patches, that are known to fit the live weights and can be written."""

    @property
    def changed(self) -> int:
        """Elements that it writes."""
        ...

    @property
    def nbytes(self) -> int:
        """Memory that it takes."""
        ...

    def write(self) -> None:
        """Write all of it. Doing so again, over what was half written too, changes nothing more."""
        ...

    def mismatches(self) -> int:
        """How many elements in memory are not what was written: 0 right after ``write``."""
        ...


S = TypeVar("S", bound=Step)


class Targets(Protocol[S]):
    """All tensors of the table, or with a layout a shard of them, as memory that can be written.

    Making one raises ``InputError`` for a tensor that is missing, unknown, of another shape or type,
    read-only, or that shares part of its memory with another one. Tied tensors (exactly the same memory) are
    fine.
    """

    weights: HeldWeights
    shard: LiveShard | None
    """The shard, with a layout."""

    merges: bool
    """Whether several deltas can be staged on each other and written as one step."""

    tied: list[list[Place]]
    """The (array, member) places of tensors that are one memory, in groups of two or more."""

    def resolve(self, rows: Rows, body: Octets, under: S | None) -> tuple[S, NDArray[np.uint64]]:
        """Check the patches of one pack against the live weights, over which ``under`` may be staged.

        Writes nothing. Returns what will be written, and the digest difference of each row's elements that
        are held, uint64 ``(R,)``. Raises ``PatchError``.
        """
        ...

    def join(self, parts: Sequence[S], under: S | None, record: DeltaRecord) -> S:
        """The packs of ``record`` as one step, with ``under`` where that is given.

        Raises ``CorruptError("bad_patch")`` when two packs write one element, ``InputError("wrong_memory")``
        when tensors would differ that are one memory.
        """
        ...

    def write(self, array: int, box: Box, bits: Bits) -> None:
        """Write what is held of a chunk; ``bits`` has the shape of ``box``."""
        ...

    def digests(self, chunks: ChunkList) -> NDArray[np.uint64]:
        """The digest of what is held of each of n chunks, each element once: uint64 ``(n,)``."""
        ...
