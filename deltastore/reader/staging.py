"""Staging: fetch, check and decode deltas before the first live element is touched.

SPEC section "Applying a version".
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import CorruptError, PatchError
from deltastore.format.digest import MODULUS
from deltastore.format.records import DeltaRecord, record_key
from deltastore.format.table import TensorTable
from deltastore.kernels.rows import chunks_of
from deltastore.layout.live_shard import LiveShard
from deltastore.reader.fetching import FetchedPatches, fetch_patches
from deltastore.reader.needed import Needed
from deltastore.reader.standing import Standing
from deltastore.reader.targets import Step, Targets
from deltastore.stores.base import Store

__all__ = ["Staged", "Stager"]


@dataclass(frozen=True, slots=True)
class Staged:
    """Deltas ready to be written as one step: every byte fetched and checked, every new bit worked out.

    ``standing`` is what memory will hold then; ``nbytes`` were fetched for them in ``requests``. ``compared``
    (n,): of a shard, which needed chunks were compared with their digests on the way.
    """

    standing: Standing
    step: Step
    nbytes: int
    requests: int
    compared: NDArray[np.bool_] | None = None

    def apply(self) -> None:
        """Write every element, then read all of them back. Doing so again changes nothing more.

        ``CorruptError("bad_digest")`` when memory does not hold what was written; the weights are torn then.
        """
        self.step.write()
        if self.step.mismatches():
            version = self.standing.record.version
            message = f"live memory does not hold version {version} after the write"
            raise CorruptError("bad_digest", message, rule="DS092")


@dataclass(frozen=True, slots=True)
class Stager:
    """Stages deltas for ``targets``. ``needed``: the chunks of a shard; None for all tensors."""

    store: Store
    table: TensorTable
    targets: Targets[Any]
    needed: Needed | None

    async def stage(self, record: DeltaRecord, base: Standing, after: Staged | None = None) -> Staged:
        """Fetch and check what is needed of ``record``'s packs, and work out every new bit.

        ``base``: what live memory holds now; ``after``: deltas staged on it, but not written yet. Every
        digest difference of a chunk that is held whole must be its patch's, and of all tensors the version's
        digest must follow. A chunk that is held in part is compared with its own digest before the first
        patch of it counts. The result takes the place of ``after``, which stays as it is.
        """
        under = None if after is None else after.step
        parts: list[Step] = []
        course = _Advance.start(self, record, base, after)
        async with aclosing(fetch_patches(self.store, self.table, record, self.needed)) as packs:
            async for fetched in packs:
                if not len(fetched.index.rows):
                    course.took(fetched, np.zeros(0, np.uint64))
                    continue
                course.compare(fetched)
                part, differences = self._resolved(record, under, fetched)
                parts.append(part)
                course.took(fetched, differences)
        step = self.targets.join(parts, under, record)
        return course.finish(step)

    def _resolved(
        self, record: DeltaRecord, under: Step | None, fetched: FetchedPatches
    ) -> tuple[Step, NDArray[np.uint64]]:
        index = fetched.index
        try:
            part, differences = self.targets.resolve(index.rows, fetched.body, under)
        except PatchError as error:
            raise index.named(error, self.table) from None
        wrong = differences != index.rows["difference"]
        if self.needed is not None:
            wrong &= self.needed.whole[self.needed.entries(chunks_of(index.rows))]
        if wrong.any():
            first = int(wrong.argmax())
            row = index.rows[first]
            pattern, chunk = self.table.arrays[int(row["array"])].pattern, int(row["chunk"])
            raise CorruptError(
                "bad_digest",
                f"{pattern} chunk {chunk}: the live weights are not those of version {record.base}, which "
                f"version {record.version} builds on; something else wrote to them, or {index.where} is "
                "wrong",
                where=index.where,
                rule="DS046",
                offset=index.start(first),
                tensor=pattern,
            )
        return part, differences


@dataclass(slots=True)
class _Advance:
    """The digests on the way from one version to the next."""

    stager: Stager
    record: DeltaRecord
    base: Standing
    digest: int
    digests: NDArray[np.uint64] | None
    compared: NDArray[np.bool_] | None
    nbytes: int
    requests: int

    @classmethod
    def start(cls, stager: Stager, record: DeltaRecord, base: Standing, after: Staged | None) -> _Advance:
        before = base if after is None else after.standing
        digests = compared = None
        if stager.needed is not None and before.digests is not None:
            digests = before.digests.copy()
            known = None if after is None else after.compared
            compared = np.zeros(len(digests), np.bool_) if known is None else known.copy()
        taken = (0, 0) if after is None else (after.nbytes, after.requests)
        return cls(stager, record, base, int(before.record.digest, 16), digests, compared, *taken)

    def compare(self, fetched: FetchedPatches) -> None:
        """Compare what rows cannot check with what it must be, before its first patch counts.

        That is chunks held in part, and copies of elements that are held twice.
        """
        needed, shard = self.stager.needed, self.stager.targets.shard
        if needed is None or shard is None or self.compared is None or self.base.digests is None:
            return
        if shard.boxes.twice:
            self._compare_copies(shard, fetched)
        entries = needed.entries(chunks_of(fetched.index.rows))
        entries = entries[~needed.whole[entries] & ~self.compared[entries]]
        found = self.stager.targets.digests(needed.chunks[entries])
        wrong = found != self.base.digests[entries]
        if wrong.any():
            array, chunk = needed.chunks[entries[int(wrong.argmax())]].tolist()
            pattern = self.stager.table.arrays[array].pattern
            raise _foreign(
                self.record, f"{pattern} chunk {chunk}, held in part, has changed", fetched.index.where
            )
        self.compared[entries] = True

    def _compare_copies(self, shard: LiveShard, fetched: FetchedPatches) -> None:
        for array, chunk in chunks_of(fetched.index.rows).tolist():
            box = self.stager.table.arrays[array].grid.box(chunk)
            name = next(shard.copies_apart(array, box), None)
            if name is not None:
                problem = f"parameter {name!r} holds a copy of elements that stand elsewhere too, and differ"
                raise _foreign(self.record, problem, fetched.index.where)

    def took(self, fetched: FetchedPatches, differences: NDArray[np.uint64]) -> None:
        """Count a pack's fetching, and what its rows do to the digests."""
        self.nbytes += fetched.nbytes
        self.requests += fetched.requests
        self.digest = (self.digest + int(differences.sum(dtype=np.uint64))) % MODULUS
        if self.digests is not None and self.stager.needed is not None:
            self.digests[self.stager.needed.entries(chunks_of(fetched.index.rows))] += differences

    def finish(self, step: Step) -> Staged:
        """The version as staged, once its digest follows, as far as that can be told from what is held."""
        needed = self.stager.needed
        if (needed is None or needed.everything) and self.digest != int(self.record.digest, 16):
            raise CorruptError(
                "bad_digest",
                f"the packs of version {self.record.version} do not lead to its digest",
                where=record_key(self.record.slot),
                rule="DS062",
            )
        return Staged(Standing(self.record, self.digests), step, self.nbytes, self.requests, self.compared)


def _foreign(record: DeltaRecord, problem: str, where: str) -> CorruptError:
    return CorruptError(
        "bad_digest",
        f"{problem}: the live weights are not those of version {record.base}, which version "
        f"{record.version} builds on; something else wrote to them",
        where=where,
        rule="DS095",
    )
