"""Checks by replay: every digest difference and every version's digest, recomputed from the weights.

One anchor and the versions that grow from it at a time; of these, some windows of chunks over all versions.
So memory depends neither on the model's size nor on how many versions there are.
"""

from __future__ import annotations

from contextlib import aclosing

import numpy as np

from deltastore.anchors.in_order import in_order
from deltastore.errors import CorruptError, DeltastoreError
from deltastore.format.digest import MODULUS, digest_text
from deltastore.format.pack import PackIndex, index_bytes
from deltastore.format.records import AnchorRecord, DeltaRecord, record_key
from deltastore.kernels.cpu import digest_chunks
from deltastore.replay import read_table
from deltastore.stores.base import Store
from deltastore.validate.chain import Chain, Committed
from deltastore.validate.report import BAD_OBJECT, Findings
from deltastore.validate.structure import read_again
from deltastore.windows.course import ANCHOR, course_of
from deltastore.windows.cutting import Window
from deltastore.windows.opening import open_walk, window_bytes
from deltastore.windows.patches import Batch
from deltastore.windows.walk import Applied, Walk, Watch, Weights

__all__ = ["check_by_replay", "families"]

ANCHOR_CHECKS = ("DS093",)
DELTA_CHECKS = ("DS065",)
PACK_CHECKS = ("DS036", "DS046")

_FIRST = -1
"""The window of what is found before the first one."""


def families(chain: Chain, versions: list[int]) -> list[list[int]]:
    """The anchors among ``versions``, which ascend, each with those of them that grow from it, in order."""
    root: dict[int, int] = {}
    grown: dict[int, list[int]] = {}
    for version in versions:
        base = chain.committed[version].base
        root[version] = version if base is None else root[base]
        grown.setdefault(root[version], []).append(version)
    return list(grown.values())


async def check_by_replay(
    store: Store, chain: Chain, family: list[int], findings: Findings, *, jobs: int = 2
) -> int:
    """Recompute all digests of one family, an anchor and versions that grow from it, whose content is sound.

    ``jobs`` windows of chunks are worked on side by side. Where a version is wrong, those that build on it
    are not judged. Problems are noted in the order of versions. Returns by how much, mod 2**64, the anchor's
    digest is not that of its weights.
    """
    replay = _Family(store, chain, family, findings, jobs)
    for version, error in await replay.check():
        findings.add(error, version)
    return replay.off


class _Family:
    """An anchor and all deltas that grow from it."""

    def __init__(
        self, store: Store, chain: Chain, versions: list[int], findings: Findings, jobs: int
    ) -> None:
        self._store = store
        self._committed = chain.committed
        self._findings = findings
        self._jobs = jobs
        self._anchor = chain.committed[versions[0]]
        bases = {one: base for one in versions if (base := chain.committed[one].base) is not None}
        self._course = course_of(versions[0], bases)
        steps = len(self._course.steps)
        self._said = np.zeros(steps, np.uint64)
        """By how much each step changes the digest, as its indexes say."""
        self._packs = np.zeros(steps, np.int64)
        self._most_changed = np.zeros(steps, np.int64)
        self._changed = np.zeros(steps, np.int64)
        self._total = 0
        self.off = 0
        self._problems: dict[tuple[int, int], tuple[int, DeltastoreError]] = {}
        self._skipped: set[int] = set()

    async def check(self) -> list[tuple[int, DeltastoreError]]:
        """(version, problem), by version; what kept all rules is noted."""
        try:
            await self._run()
        except BAD_OBJECT as error:
            return [(self._anchor.version, error)]
        self.off = (self._anchor.digest - self._total) % MODULUS
        if self.off:
            return [(self._anchor.version, wrong_anchor(self._anchor, self._total))]
        self._judge_records()
        return self._conclude()

    async def _run(self) -> None:
        record = await read_again(self._store, self._anchor)
        if not isinstance(record, AnchorRecord):
            raise TypeError("a family starts with an anchor")
        table = await read_table(self._store, record.table)
        nbytes = window_bytes(self._course, self._jobs)
        walk = await open_walk(self._store, table, record, self._course, self, nbytes=nbytes)
        try:
            self._judge_differences()
            numbers = range(len(walk.windows))
            async with aclosing(
                in_order(numbers, lambda number: self._over(walk, number), ahead=self._jobs)
            ) as windows:
                async for look in windows:
                    self._total += look.total
                    self._changed += look.changed
                    self._findings.advance(look.nbytes)
        finally:
            walk.close()

    async def _over(self, walk: Walk, number: int) -> _Look:
        look = _Look(self, number)
        await walk.over(number, look)
        return look

    # What the walk asks for and tells ---------------------------------------------------------------------

    async def record(self, step: int) -> DeltaRecord | None:
        """The manifest of a step."""
        try:
            record = await read_again(self._store, self._committed[self._course.steps[step].version])
        except BAD_OBJECT as error:
            self.note(step, 0, _FIRST, error)
            return None
        if not isinstance(record, DeltaRecord):
            raise TypeError("what grows from an anchor are deltas")
        self._most_changed[step] = record.statistics.changed
        self._packs[step] = len(record.packs)
        certificate = record.statistics.certificate
        if certificate is not None:
            self._findings.figures.update(certificate.model_dump())
        return record

    def indexed(self, step: int, index: PackIndex) -> None:
        """The index of a pack."""
        self._said[step : step + 1] += index.rows["difference"].sum(dtype=np.uint64)  # modulo 2**64
        self._findings.advance(index_bytes(len(index.rows)))

    def lost(self, step: int, error: CorruptError) -> None:
        """A pack whose index is gone or has changed since it was checked."""
        self.note(step, 0, _FIRST, error)

    # What is found ----------------------------------------------------------------------------------------

    def skips(self, step: int) -> bool:
        """Whether a step builds on one that is wrong."""
        return step in self._skipped

    def note(self, step: int, pack: int, window: int, error: DeltastoreError) -> None:
        """A problem: of each pack the one in the first window is kept."""
        known = self._problems.get((step, pack))
        if known is None or window < known[0]:
            self._problems[step, pack] = (window, error)
        if known is None:
            self._skipped = self._course.spoilt(self._wrong_steps)

    @property
    def _wrong_steps(self) -> set[int]:
        return {step for step, _ in self._problems}

    def _before(self, step: int) -> Committed:
        parent = self._course.steps[step].parent
        return self._anchor if parent == ANCHOR else self._committed[self._course.steps[parent].version]

    def _judge_differences(self) -> None:
        """A patch that does not fit may be sound, and a record before it wrong about its digest.

        So records that do not follow from what their own indexes say are found first.
        """
        for number, step in enumerate(self._course.steps):
            committed = self._committed[step.version]
            digest = (self._before(number).digest + int(self._said[number])) % MODULUS
            if digest != committed.digest and number not in self._wrong_steps:
                self.note(number, 0, _FIRST, _wrong_digest(committed, digest))

    def _judge_records(self) -> None:
        """Elements that differ are no more than the record says (SPEC DS065)."""
        for number, step in enumerate(self._course.steps):
            if self._changed[number] > self._most_changed[number] and number not in self._wrong_steps:
                where = record_key(self._committed[step.version].slot)
                message = (
                    f"{where} says that {self._most_changed[number]} elements changed in version "
                    f"{step.version}: {self._changed[number]} did"
                )
                error = CorruptError("bad_json", message, where=where, rule="DS065")
                self.note(number, 0, _FIRST, error)

    def _conclude(self) -> list[tuple[int, DeltastoreError]]:
        wrong, spoilt = self._wrong_steps, self._course.spoilt(self._wrong_steps)
        sound = np.ones(len(self._course.steps), np.bool_)
        sound[[*wrong, *spoilt]] = False
        self._findings.passed(ANCHOR_CHECKS)
        self._findings.passed(DELTA_CHECKS, int(sound.sum()))
        self._findings.passed(PACK_CHECKS, int(self._packs[sound].sum()))
        self._findings.figures.update(
            replayed=int(sound.sum()) + 1,
            changed_said=int(self._most_changed[sound].sum()),
            changed=int(self._changed[sound].sum()),
        )
        return sorted(
            (
                (self._course.steps[step].version, error)
                for (step, _), (_, error) in sorted(self._problems.items(), key=lambda one: one[0])
                if step not in spoilt
            ),
            key=lambda problem: problem[0],
        )


class _Look(Watch):
    """One window as it is carried through all versions of a family."""

    def __init__(self, family: _Family, number: int) -> None:
        self._family = family
        self._number = number
        self.total = 0
        self.nbytes = 0
        self.changed = np.zeros(len(family._course.steps), np.int64)

    def begun(self, window: Window, weights: Weights) -> None:
        """Sum up the anchor's digest."""
        self.total = int(digest_chunks(weights.pieces, window.chunks).sum(dtype=np.uint64))
        self.nbytes += window.nbytes

    def skips(self, step: int) -> bool:
        """Whether the step builds on one that is wrong."""
        return self._family.skips(step)

    def stepped(self, applied: Applied) -> None:
        """Count what really changed."""
        self.changed[applied.batch.step] += applied.changed
        self.nbytes += int(applied.batch.rows["length"].sum(dtype=np.int64))

    def failed(self, batch: Batch, error: CorruptError) -> None:
        """Note it; what builds on this step is not judged from now on."""
        self._family.note(batch.step, batch.pack, self._number, error)


def wrong_anchor(committed: Committed, total: int) -> CorruptError:
    """The weights of an anchor have another digest than its manifest says (SPEC DS093)."""
    where, digest = record_key(committed.slot), digest_text(committed.digest)
    found = digest_text(total % MODULUS)
    message = f"{where} says that version {committed.version} has digest {digest}: its anchor has {found}"
    return CorruptError("bad_digest", message, where=where, rule="DS093")


def _wrong_digest(committed: Committed, found: int) -> CorruptError:
    where, digest = record_key(committed.slot), digest_text(committed.digest)
    message = (
        f"{where} says that version {committed.version} has digest {digest}: its packs lead to "
        f"{digest_text(found)}"
    )
    return CorruptError("bad_digest", message, where=where, rule="DS062")
