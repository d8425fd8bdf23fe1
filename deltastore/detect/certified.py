"""Detection without a copy of the published weights: old bits from anywhere, held to a certificate.

What is published is known by the digest of each block of at most 2048 elements. A detector says what the
bits were before; where that has the digest on record it is the truth, and everything else is sent. So
whatever is wrong with what a detector believes makes a version larger, and never wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import closing
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from deltastore.detect.batch import BatchBox, cut
from deltastore.detect.findings import Findings
from deltastore.detect.in_order import in_order
from deltastore.detect.laid import Bits, Laid, Room
from deltastore.detect.standing import Flags, Recalled, Standing, fill_blocks
from deltastore.detect.steady import moved
from deltastore.kernels.cpu import digest_blocks, encode_changed
from deltastore.kernels.rows import EncodedPatches
from deltastore.layout.live_parts import LiveParts

__all__ = ["Certified"]

Result = TypeVar("Result")
Certificate = NDArray[np.uint64]


class Certified:
    """What the detectors share that keep a certificate instead of a copy.

    ``live`` is read in place, batch by batch, by ``threads`` threads. Memory: 8 bytes for each block of 2048
    elements, as much again between a round and its commit, what ``Standing`` keeps, and for each thread three
    batches.
    """

    def __init__(self, live: LiveParts, threads: int) -> None:
        self.live = live
        self.table = live.table
        self.batches, self.block_count = cut(live)
        self._laid = [Laid(batch.boxes) for batch in self.batches]
        pairs = zip(self.batches, self._laid, strict=True)
        self._largest = max((laid.elements * batch.itemsize for batch, laid in pairs), default=0)
        self._rooms: list[Room] = []
        self.use_threads(threads)

    def use_threads(self, threads: int) -> None:
        """From now on as many batches are looked at side by side."""
        count = max(min(threads, len(self.batches)), 1)
        del self._rooms[count:]
        self._rooms += [Room(self._largest) for _ in range(count - len(self._rooms))]

    def each_batch(self, work: Callable[[int, Room], Result]) -> Generator[Future[Result]]:
        """``work`` done for every batch, side by side, and its outcomes in order; see ``in_order``."""
        return in_order(work, len(self.batches), self._rooms)

    def results(self, work: Callable[[int, Room], Result]) -> Iterator[Result]:
        """The results of ``work`` for every batch, in order; waits for each."""
        with closing(self.each_batch(work)) as outcomes:
            for outcome in outcomes:
                yield outcome.result()

    def laid(self, number: int, boxes: tuple[BatchBox, ...]) -> Laid:
        """Boxes of batch ``number`` as a buffer has them; known already where they are all of its boxes."""
        whole = self._laid[number]
        return whole if boxes == whole.boxes else Laid(boxes)

    # What is there now ------------------------------------------------------------------------------------

    def digests_now(self) -> Certificate:
        """The certificate of the live weights: uint64 ``(blocks,)``. Reads every element once."""
        digests = np.zeros(self.block_count, np.uint64)

        def look(number: int, room: Room) -> None:
            seen = self.recall_same(number, self.batches[number].boxes, digests, room)
            digests[seen.laid.numbers] = seen.digests

        for _ in self.results(look):
            pass
        return digests

    def is_now(self, certificate: Certificate) -> bool:
        """Whether the live weights are those of ``certificate``; reads on until something differs."""

        def same(number: int, room: Room) -> bool:
            seen = self.recall_same(number, self.batches[number].boxes, certificate, room)
            return bool(seen.known.all())

        return all(self.results(same))

    def recall_same(
        self, number: int, boxes: tuple[BatchBox, ...], before: Certificate, room: Room, start: int = 0
    ) -> Recalled:
        """Boxes of a batch as if nothing had changed since ``before``; ``known`` says where that is so.

        They take ``room`` from element ``start`` on.
        """
        laid = self.laid(number, boxes)
        end = start + laid.elements
        new, old, _ = (buffer[start:end] for buffer in room.views(self.batches[number].storage))
        for of, bits in laid.in_boxes(new):
            bits[...] = self.live.parts[of.part].within(of.box)
        old[:] = new
        digests = digest_blocks(laid.blocks, new)
        return Recalled(laid, new, old, digests, digests == before[laid.numbers])

    # From bits to patches ---------------------------------------------------------------------------------

    def batch_changes(
        self,
        number: int,
        recalled: Recalled,
        standing: Standing,
        before: Certificate,
        room: Room,
        found: Findings,
    ) -> EncodedPatches:
        """What turns ``standing`` into the live weights, of one batch; unexplained blocks are sent whole."""
        bits, unexplained = self._rebuild(number, recalled, standing, before, room)
        found.blocks += len(unexplained)
        if not unexplained.any():
            return self._encode(number, recalled, recalled.new, bits)
        found.unexplained += int(unexplained.sum())
        found.parts.update(recalled.laid.parts_of(unexplained))
        fill_blocks(recalled.laid.blocks, bits, unexplained, far_from(recalled.new))
        return self.half_known(number, recalled, bits, unexplained, standing)

    def half_known(
        self, number: int, recalled: Recalled, bits: Bits, chosen: Flags, standing: Standing
    ) -> EncodedPatches:
        """As patches on ``bits``, which in the ``chosen`` (B,) blocks are not those of ``standing``.

        What is far from the new bits there is written absolutely. What the blocks held is not known, but its
        digest is: so the rows' differences are right all the same.
        """
        patches = self._encode(number, recalled, recalled.new, bits)
        pretended = digest_blocks(recalled.laid.blocks, bits)
        correct_differences(recalled, patches, pretended, chosen, standing.digests[recalled.laid.numbers])
        return patches

    def kept_changes(
        self, number: int, recalled: Recalled, standing: Standing, before: Certificate, room: Room
    ) -> EncodedPatches | None:
        """What turns the live bits of one batch back into those of ``standing``, where they can be had."""
        bits, unexplained = self._rebuild(number, recalled, standing, before, room)
        if bits is recalled.old:  # it is wanted again, for another standing
            bits = self._published(number, recalled, room)
            bits[:] = recalled.old
        fill_blocks(recalled.laid.blocks, bits, unexplained, recalled.new)
        return self.way_back(number, recalled, bits)

    def way_back(self, number: int, recalled: Recalled, bits: Bits) -> EncodedPatches | None:
        """What turns the live bits of a batch into ``bits`` (n,); None where they are the same."""
        patches = self._encode(number, recalled, bits, recalled.new)
        return patches if len(patches.rows) else None

    def from_nothing(self, number: int, certificate: Certificate, room: Room) -> EncodedPatches:
        """All elements of a batch as patches on zero bits; InputError unless they have ``certificate``."""
        seen = self.recall_same(number, self.batches[number].boxes, certificate, room)
        if not seen.known.all():
            raise moved()
        seen.old[:] = 0
        return self._encode(number, seen, seen.new, seen.old)

    def _rebuild(
        self, number: int, recalled: Recalled, standing: Standing, before: Certificate, room: Room
    ) -> tuple[Bits, Flags]:
        published = self._published(number, recalled, room)
        return standing.rebuild(self.table.kernels, number, recalled, before, published)

    def _published(self, number: int, recalled: Recalled, room: Room) -> Bits:
        return room.views(self.batches[number].storage)[2][: recalled.laid.elements]

    def _encode(self, number: int, recalled: Recalled, new: Bits, old: Bits) -> EncodedPatches:
        after, before = (recalled.laid.over(self.table.kernels, bits) for bits in (new, old))
        return encode_changed(after, before, self.batches[number].chunks)


def far_from(new: Bits) -> Bits:
    """Bits so far from ``new`` in ordered space that only a residue of full width carries the step."""
    far: Bits = new ^ new.dtype.type(1 << (new.dtype.itemsize * 8 - 2))
    return far


def correct_differences(
    recalled: Recalled,
    patches: EncodedPatches,
    pretended: Certificate,
    chosen: Flags,
    wanted: Certificate,
) -> None:
    """Rows were encoded against ``pretended`` (B,) digests; ``wanted`` ones hold in the ``chosen`` blocks."""
    wrong = np.where(chosen, pretended - wanted, np.uint64(0))
    places = zip(patches.rows["array"].tolist(), patches.rows["chunk"].tolist(), strict=True)
    row_of = {place: row for row, place in enumerate(places)}
    ends = recalled.laid.blocks.first_block.tolist()
    for of, first, end in zip(recalled.laid.boxes, ends[:-1], ends[1:], strict=True):
        if chosen[first:end].any():
            row = row_of[of.box.array, of.chunk]
            patches.rows["difference"][row : row + 1] += wrong[first:end].sum(dtype=np.uint64, keepdims=True)
