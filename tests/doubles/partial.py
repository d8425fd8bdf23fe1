"""Parts of staged bits: what an apply that stops half way has written."""

from __future__ import annotations

from deltastore.kernels.pieces import KernelTable
from deltastore.kernels.reference.staged import staged, staged_chunks
from deltastore.kernels.rows import StagedBits


def up_to_the_middle_of(table: KernelTable, new: StagedBits, chunk: int) -> StagedBits | None:
    """All chunks before number ``chunk`` (from 1 on) and the first half of it; None when there are fewer."""
    changes = list(staged_chunks(table, new))
    if len(changes) < chunk:
        return None
    place, (positions, bits) = changes[chunk - 1]
    half = len(positions) // 2
    return staged([*changes[: chunk - 1], (place, (positions[:half], bits[:half]))])
