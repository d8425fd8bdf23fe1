"""What live memory is known to hold: a version, and of a shard the digests that say so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltastore.format.digest import digest_text
from deltastore.format.table import TensorTable
from deltastore.layout.batches import chunks_in_order
from deltastore.log import Manifest
from deltastore.reader.needed import Needed
from deltastore.reader.targets import Targets

__all__ = ["Standing", "holds", "needed_by"]


@dataclass(frozen=True, slots=True)
class Standing:
    """A version in memory. ``digests`` (n,): of a shard, what it holds of each needed chunk; else None.

    The manifest's digest is one of all weights, which a shard cannot be compared with. Its own digests start
    with the checked bytes of an anchor and go on with the differences of every delta; never with memory.
    """

    record: Manifest
    digests: NDArray[np.uint64] | None = None


def needed_by(targets: Targets[Any]) -> Needed | None:
    """The chunks that a shard needs; None where the targets are all tensors."""
    shard = targets.shard
    return None if shard is None else Needed.by(shard.boxes)


def holds(table: TensorTable, targets: Targets[Any], needed: Needed | None, standing: Standing) -> bool:
    """Whether live memory is exactly that; reads every element."""
    if needed is None or standing.digests is None or targets.shard is None:
        found = targets.digests(chunks_in_order(table)).sum(dtype=np.uint64)
        return digest_text(int(found)) == standing.record.digest
    if not np.array_equal(targets.digests(needed.chunks), standing.digests):
        return False
    return next(targets.shard.astray(), None) is None
