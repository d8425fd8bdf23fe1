"""Elements that two packs of a delta write (SPEC DS045).

Packs whose rows do not reach over each other share no chunk, and so nothing is kept of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deltastore.format.pack import PackIndex
from deltastore.format.table import TensorTable
from deltastore.kernels.rows import StagedBits, chunks_of

__all__ = ["Ends", "Sharing", "Written", "reaching_over"]

Ends = tuple[tuple[int, ...], tuple[int, ...]]
"""(slab, array, chunk) of the first row of a pack, and of the last."""


def reaching_over(packs: Sequence[Ends]) -> list[list[int]]:
    """Groups of packs, by number, whose ranges of rows touch one another, of two packs or more."""
    groups: list[list[int]] = []
    reach: tuple[int, ...] = ()
    for number in sorted(range(len(packs)), key=packs.__getitem__):
        first, last = packs[number]
        if groups and first <= reach:
            groups[-1].append(number)
            reach = max(reach, last)
        else:
            groups.append([number])
            reach = last
    return [group for group in groups if len(group) > 1]


class Sharing:
    """``steps``: those with packs that reach over each other. ``add`` all indexes in order, then ``seal``."""

    def __init__(self, table: TensorTable) -> None:
        self._table = table
        self._step = -1
        self._ends: list[Ends] = []
        self.steps: set[int] = set()

    def add(self, step: int, index: PackIndex) -> None:
        """The index of one more pack."""
        if step != self._step:
            self.seal()
            self._step = step
        rows = index.rows[[0, -1]]
        keys = zip(self._table.slabs_of(chunks_of(rows)), rows["array"], rows["chunk"], strict=True)
        first, last = (tuple(int(part) for part in key) for key in keys)
        self._ends.append((first, last))

    def seal(self) -> None:
        """No more packs of this step come."""
        if reaching_over(self._ends):
            self.steps.add(self._step)
        self._ends.clear()


class Written:
    """What packs of one step have written so far of a window: a bit for each element of their chunks."""

    def __init__(self, table: TensorTable) -> None:
        self._table = table
        self._step = -1
        self._bits: dict[tuple[int, int], NDArray[np.uint8]] = {}

    def add(self, step: int, staged: StagedBits) -> int | None:
        """Patches of one pack more; the number of the first one that writes again what another pack wrote."""
        if step != self._step:
            self._step = step
            self._bits.clear()
        for number, (array, chunk) in enumerate(staged.chunks.tolist()):
            positions = staged.positions[staged.starts[number] : staged.starts[number + 1]]
            now = np.zeros(self._table.arrays[array].grid.box(chunk).elements, np.bool_)
            now[positions] = True
            packed, before = np.packbits(now), self._bits.get((array, chunk))
            if before is not None:
                if (before & packed).any():
                    return number
                packed |= before
            self._bits[array, chunk] = packed
        return None
