"""A copy of what stands published, and what a detector makes of it round by round, compared bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from deltastore.detect.changes import LiveDetector
from deltastore.kernels.cpu import apply, digest_chunks, resolve
from deltastore.kernels.pieces import Piece, Pieces
from deltastore.kernels.rows import EncodedPatches, chunks_of
from deltastore.layout.live_parts import LiveParts

Bits = np.ndarray[Any, Any]

__all__ = ["Copy", "Found", "Oracle"]


class Copy:
    """The bits of all parts of ``live`` at one moment, in memory of their own."""

    def __init__(self, live: LiveParts, bits: Sequence[Bits]) -> None:
        self.live = live
        self.bits = tuple(bits)
        self.pieces = Pieces(
            live.table.kernels,
            [Piece(box.array, box.member, box.lo, one) for box, one in zip(live.boxes, bits, strict=True)],
        )

    @classmethod
    def of(cls, live: LiveParts) -> Self:
        """Of now."""
        arrays = live.table.arrays
        bits = [np.empty(box.size, arrays[box.array].element.storage) for box in live.boxes]
        live.fill(bits)
        return cls(live, bits)

    @classmethod
    def blank(cls, live: LiveParts) -> Self:
        """Zero bits."""
        arrays = live.table.arrays
        return cls(live, [np.zeros(box.size, arrays[box.array].element.storage) for box in live.boxes])

    def again(self) -> Copy:
        """A copy of the copy."""
        return Copy(self.live, [one.copy() for one in self.bits])

    @property
    def digest(self) -> int:
        """Of all elements, mod 2**64, computed chunk by chunk and not block by block."""
        return int(digest_chunks(self.pieces, self.live.chunks).sum(dtype=np.uint64))

    def differs(self, other: Copy) -> int:
        """How many elements do."""
        return sum(int((one != two).sum()) for one, two in zip(self.bits, other.bits, strict=True))

    def wrong(self, other: Copy) -> list[str]:
        """The names of the tensors that differ."""
        names = [part.name for part in self.live.parts]
        pairs = zip(names, self.bits, other.bits, strict=True)
        return [name for name, one, two in pairs if one.tobytes() != two.tobytes()]


@dataclass(frozen=True, slots=True)
class Found:
    """A round: ``changed`` elements did change, ``sent`` were written."""

    changed: int
    sent: int
    rows: int
    batches: tuple[EncodedPatches, ...]


class Oracle:
    """``detector`` under watch: what each of its rounds finds turns the copy into the live weights."""

    def __init__(self, live: LiveParts, detector: LiveDetector, published: Copy | None = None) -> None:
        self.live = live
        self.detector = detector
        self.published = published or Copy.of(live)
        self._found: Copy | None = None

    @property
    def open(self) -> bool:
        """Whether a round waits for its outcome."""
        return self._found is not None

    async def find(self) -> Found:
        """A round of changes; it stays open."""
        after = self.published.again()
        batches = []
        async for patches in self.detector.changes():
            batches.append(patches)
            _, differences = resolve(after.pieces, patches.rows, patches.body)
            assert (differences == patches.rows["difference"]).all()
            apply(after.pieces, patches.rows, patches.body)
        now = Copy.of(self.live)
        assert after.wrong(now) == []
        moved = sum(int(one.rows["difference"].sum(dtype=np.uint64)) for one in batches)
        assert (self.published.digest + moved) % 2**64 == now.digest == await self.detector.digest()
        _check_order(self.live, batches)
        changed = self.published.differs(now)
        self._found = now
        sent = sum(int(one.changed.sum()) for one in batches)
        rows = sum(len(one.rows) for one in batches)
        assert sent >= changed
        return Found(changed, sent, rows, tuple(batches))

    async def take_whole(self) -> None:
        """A round that stores the weights whole; it stays open."""
        await self.detector.retake()
        now = Copy.of(self.live)
        assert await self.detector.digest() == now.digest
        built = Copy.blank(self.live)
        async for patches in self.detector.everything():
            apply(built.pieces, patches.rows, patches.body)
        assert built.wrong(now) == []
        self._found = now

    async def commit(self) -> None:
        """What the open round found stands published."""
        assert self._found is not None
        self.detector.committed()
        self.published, self._found = self._found, None
        await self.check()

    async def abort(self) -> None:
        """What the open round found does not."""
        self.detector.aborted()
        self._found = None
        await self.check()

    async def check(self) -> None:
        """While no round is open: what the detector says of what stands published is so."""
        assert await self.detector.digest() == self.published.digest
        same = Copy.of(self.live).wrong(self.published) == []
        assert await self.detector.unchanged() == same

    async def publish(self) -> Found:
        """A round that is committed at once."""
        found = await self.find()
        await self.commit()
        return found


def _check_order(live: LiveParts, batches: Sequence[EncodedPatches]) -> None:
    """Pack order: by slab, then array, then chunk, and no chunk twice."""
    keys = []
    for patches in batches:
        places = chunks_of(patches.rows)
        slabs = live.table.slabs_of(places).tolist()
        keys += [(slab, *place) for slab, place in zip(slabs, places.tolist(), strict=True)]
    assert keys == sorted(set(keys))
