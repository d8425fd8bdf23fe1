"""The detector that is told what changed: by an optimizer, a compressor or a kernel that knows it anyway."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from deltastore.detect.certified import far_from
from deltastore.detect.findings import Findings
from deltastore.detect.laid import Bits, Room
from deltastore.detect.marks import Indexes, MarksByName, chunked, marked
from deltastore.detect.rounds import Round, Rounds
from deltastore.detect.standing import Flags, Recalled, Standing, fill_blocks
from deltastore.kernels.rows import EncodedPatches
from deltastore.layout.live_parts import LiveParts

__all__ = ["External"]


class External(Rounds):
    """Publishes the elements that were marked since the last committed round, each with its new bits.

    A block of at most 2048 elements without a mark must have the digest of what stands published, else it is
    sent whole. In a block with marks, they are believed: what changed there without one makes a version that
    readers refuse (``bad_digest``), since its digest is that of the weights. Old values are not known, so a
    changed element costs its full width.
    """

    name = "external"

    def __init__(self, live: LiveParts, *, threads: int = 1) -> None:
        super().__init__(live, threads)
        self._marks: dict[int, Indexes] = {}
        self._found: dict[int, Indexes] = {}
        """Marks of the round that is open; those that come meanwhile are of the next one."""

    def mark(self, marks: MarksByName) -> None:
        """These elements may have changed since the last round, beside those marked before."""
        fresh = marked(self.live, marks)
        with self.lock:
            self.refuse_while_reading("elements are marked")
            _unite(self._marks, fresh)

    def finder(self, found: Round) -> Callable[[int, Room], tuple[EncodedPatches, Findings]]:
        """Finds what is marked, and every block that is not what it was without a mark."""
        _unite(self._marks, self._found)
        self._found = {}
        places = {
            (number, chunk): indexes
            for number, marks in self._marks.items()
            for chunk, indexes in chunked(self.live, number, marks).items()
        }

        def find(number: int, room: Room) -> tuple[EncodedPatches, Findings]:
            return self._find(number, places, found.standing, room)

        return find

    def _find(
        self, number: int, places: dict[tuple[int, int], Indexes], now: Standing, room: Room
    ) -> tuple[EncodedPatches, Findings]:
        seen = self.recall_same(number, self.batches[number].boxes, self.published.digests, room)
        now.digests[seen.laid.numbers] = seen.digests
        far = far_from(seen.new)
        touched = _touch(seen, far, places)
        unexplained = ~(seen.known | touched)
        fill_blocks(seen.laid.blocks, seen.old, unexplained, far)
        patches = self.half_known(number, seen, seen.old, unexplained | touched, self.published)
        return patches, Findings(blocks=len(unexplained), unexplained=int(unexplained.sum()))

    def ended(self, found: Round) -> None:  # noqa: ARG002
        """What is marked by now is of this round."""
        _unite(self._found, self._marks)
        self._marks = {}

    def settled(self, found: Round) -> None:  # noqa: ARG002
        """What was marked for the round stands published."""
        self._found = {}

    def aborted(self) -> None:
        """What was marked stays so."""
        super().aborted()
        with self.lock:
            _unite(self._marks, self._found)
            self._found = {}


def _touch(seen: Recalled, far: Bits, places: dict[tuple[int, int], Indexes]) -> Flags:
    """Make what is marked far from its new bits, where anything changed; the blocks (B,) of that."""
    blocks = seen.laid.blocks
    touched = np.zeros(len(seen.known), np.bool_)
    for of, start in zip(seen.laid.boxes, blocks.first.tolist(), strict=False):
        marks = places.get((of.part, of.chunk))
        if marks is not None:
            at = marks + start
            block = np.searchsorted(blocks.starts, at, "right") - 1
            changed = ~seen.known[block]
            at = at[changed]
            seen.old[at] = far[at]
            touched[block[changed]] = True
    return touched


def _unite(marks: dict[int, Indexes], more: dict[int, Indexes]) -> None:
    for number, indexes in more.items():
        before = marks.get(number)
        marks[number] = indexes if before is None else np.union1d(before, indexes)
