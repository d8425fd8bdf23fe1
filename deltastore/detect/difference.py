"""Comparing two weights chunk by chunk: a checkpoint with a version, or live weights with a snapshot."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from deltastore.kernels.cpu import encode_changed
from deltastore.kernels.rows import EncodedPatches
from deltastore.layout.weights import AnyWeights, batches_of, pieces_of

__all__ = ["Difference", "compare"]


async def compare(new: AnyWeights, old: AnyWeights, *, threads: int = 1) -> AsyncGenerator[EncodedPatches]:
    """What turns ``old`` into ``new``, in pack order; each is read once, a few chunks at a time.

    Weights that move meanwhile make a version that mixes two moments, but never one that contradicts itself.
    """
    batches = batches_of(new, old)
    for chunks in batches:
        after, before = await pieces_of(new, chunks), await pieces_of(old, chunks)
        patches = encode_changed(after, before, chunks, threads=threads)
        batches.made(len(patches.body))
        if len(patches.rows):
            yield patches
        del patches  # else it would be there beside the next one


class Difference:
    """Detects by comparing ``new`` with ``old``, each read once. It is spent after one version."""

    name = "difference"

    def __init__(self, new: AnyWeights, old: AnyWeights, *, threads: int = 1) -> None:
        self._new = new
        self._old = old
        self._threads = threads

    def changes(self) -> AsyncGenerator[EncodedPatches]:
        """Everything that differs, in pack order."""
        return compare(self._new, self._old, threads=self._threads)

    def committed(self) -> None:
        """Nothing to remember."""

    def aborted(self) -> None:
        """Nothing to take back."""
