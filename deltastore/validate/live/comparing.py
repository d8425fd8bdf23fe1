"""Proof that live weights are a version: of a dump bit by bit, of a reader by digests of its memory.

The version is replayed from the store, window by window, every byte checked; nothing of the size of the model
is held. A digest of 64 bits for each chunk tells any fault but one in 2**64, and is no defence against
somebody who wants to deceive; bits are bits.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, aclosing, closing
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from deltastore.anchors.in_order import in_order
from deltastore.errors import InputError
from deltastore.format.digest import MODULUS, digest_text
from deltastore.format.records import AnchorRecord, DeltaRecord
from deltastore.format.table import TensorTable
from deltastore.kernels.cpu import digest_chunks
from deltastore.kernels.pieces import Pieces
from deltastore.kernels.rows import CHUNK, ChunkList, places_of
from deltastore.layout.pieces import Layout
from deltastore.layout.watched import Progress
from deltastore.log import Log, Manifest
from deltastore.replay import find_path, read_table
from deltastore.stores.base import Store
from deltastore.validate.live.claims import check_claims
from deltastore.validate.live.coverage import covered
from deltastore.validate.live.files import Attestations, LiveFiles
from deltastore.validate.live.params import ParameterSource
from deltastore.validate.live.report import Apart, LiveReport
from deltastore.validate.live.sources import AttestedSource, CheckpointSource, Look, Source
from deltastore.windows.cutting import Window
from deltastore.windows.opening import WINDOW_BYTES
from deltastore.windows.versions import open_path
from deltastore.windows.walk import Applied, Walk, Watch, Weights

__all__ = ["compare_live"]

_NONE = -1
"""Of a chunk that is as in no version of the path."""


async def compare_live(
    store: Store,
    live: LiveFiles,
    *,
    version: int | None = None,
    layout: Layout | None = None,
    nonce: str | None = None,
    jobs: int = 2,
    progress: Progress | None = None,
) -> LiveReport:
    """Compare what ``live`` says or holds with ``version`` of the stream in ``store``.

    ``version``: by default the one that readers attest, of several the newest; for a dump the newest.
    ``layout``: how a dump by parameter names holds the tensors; None: as ``live`` says, else it goes by
    tensor names. ``nonce``: what readers must have said, so that it is not older than the question. All
    claims are held against the log. ``jobs`` windows of chunks are worked on side by side. Memory does not
    depend on the size of the model.

    Raises ``NotFoundError`` (``no_stream``, ``no_version``), ``InputError`` for weights that are not of the
    stream's tensors, or of another stream, or none at all, and for claims that are not in the log, or of
    another nonce, and ``CorruptError`` for a store or an attestation that breaks a rule.
    """
    if jobs < 1:
        raise InputError("bad_argument", f"jobs is {jobs}; give 1 or more")
    log = Log(store)
    await check_claims(log, live, (await log.birth()).stream, nonce)
    claimed = live.claimed if isinstance(live, Attestations) else ()
    wanted = max(claimed) if version is None and claimed else version
    target = await (log.newest_manifest() if wanted is None else log.manifest(wanted))
    table = await read_table(store, target.table)
    path = await find_path(log, target)
    with ExitStack() as opened:
        sources = [opened.enter_context(closing(source)) for source in _sources(live, table, layout)]
        report = await _begun(store, live, target, sources)
        nbytes = max(WINDOW_BYTES // jobs, 1)
        versions = [record.version for record in (path.anchor, *path.deltas) if record is not None]
        with closing(await open_path(store, table, path, chunks=_wanted(sources), nbytes=nbytes)) as walk:
            summary = await _compare(walk, sources, report, jobs, progress)
        await _conclude(log, report, sources, summary, versions)
    return report


async def _begun(store: Store, live: LiveFiles, target: Manifest, sources: Sequence[Source]) -> LiveReport:
    """What is known before anything is compared."""
    report = LiveReport(
        url=store.url,
        version=target.version,
        sources=live.names,
        attested=isinstance(live, Attestations),
        claimed=live.claimed if isinstance(live, Attestations) else (),
        claims=live.claims if isinstance(live, Attestations) else (),
        total=sources[0].held.table.elements,
        covered=await asyncio.to_thread(covered, [source.held for source in sources]),
        elements=sum(source.held.elements + source.copies for source in sources),
        holes=sum(source.holes for source in sources),
    )
    if not report.elements:
        message = f"{live.names[0]} holds no element of version {target.version}: there is nothing to compare"
        raise InputError("bad_argument", message, where=live.names[0])
    for name, source in zip(live.names, sources, strict=True):
        report.astray += [(name, param) for param in await asyncio.to_thread(list, source.strays())]
    return report


def _sources(live: LiveFiles, table: TensorTable, layout: Layout | None) -> list[Source]:
    if isinstance(live, Attestations):
        return [AttestedSource(name, table, one) for name, one in live.attestations]
    seen_through = live.layout if layout is None else layout
    if seen_through is None:
        return [CheckpointSource(live.name, table, live.checkpoint)]
    return [ParameterSource(live.name, table, live.checkpoint, seen_through)]


def _wanted(sources: Sequence[Source]) -> ChunkList | None:
    """The chunks of which any source holds something; None for all."""
    if any(source.held.everything for source in sources):
        return None
    return np.unique(np.concatenate([np.zeros(0, CHUNK), *(source.held.chunks for source in sources)]))


@dataclass(slots=True)
class _Summary:
    """What all chunks have in common: the versions, as numbers on the path, that they are as in."""

    since: int = 0
    until: int | None = None
    newest: Counter[int] = field(default_factory=Counter)
    digests: list[int] = field(default_factory=list)

    def add(self, seen: _Seen) -> None:
        """Take in some chunks."""
        self.newest.update(seen.until.tolist())
        if len(seen.until):
            least = int(seen.until.min())
            self.until = least if self.until is None else min(self.until, least)
            self.since = max(self.since, int(seen.since.max()))

    @property
    def common(self) -> int | None:
        """The newest version that every chunk is as in."""
        return self.until if self.until is not None and self.until >= max(self.since, 0) else None


async def _compare(
    walk: Walk, sources: Sequence[Source], report: LiveReport, jobs: int, progress: Progress | None
) -> _Summary:
    summary = _Summary(digests=[0] * len(sources))
    total, done = sum(window.nbytes for window in walk.windows), 0

    async def over(number: int) -> _Compared:
        watch = await _Compared.start(walk.windows[number], sources, len(walk.course.steps))
        await asyncio.to_thread(watch.conclude, (await walk.over(number, watch))[0])
        return watch

    async with aclosing(in_order(range(len(walk.windows)), over, ahead=jobs)) as windows:
        async for window in windows:
            for seen in window.seen:
                summary.add(seen)
                summary.digests[seen.source] += int(seen.live.sum(dtype=np.uint64))
                report.chunks += len(seen.chunks)
                report.differing += int((~seen.same).sum())
            for apart in window.apart:
                report.add(apart)
            done += window.nbytes
            if progress is not None:
                progress(done, total)
    return summary


class _Seen:
    """What one source holds of a window's chunks, and which versions of the path each is as in.

    ``since`` and ``until`` (n,): the newest run of versions on the path, as numbers (0: the anchor) that the
    chunk is as in, both included; ``_NONE`` where there is none. ``same``: whether it is so now.
    """

    def __init__(self, source: int, live: NDArray[np.uint64], chunks: ChunkList, pieces: Pieces) -> None:
        self.source = source
        self.live = live
        self.chunks = chunks
        self.same = np.zeros(len(chunks), np.bool_)
        self.since = np.full(len(chunks), _NONE)
        self.until = np.full(len(chunks), _NONE)
        self._pieces = pieces
        self._places = places_of(chunks)
        self.look(np.arange(len(chunks)), 0)

    def stepped(self, number: int, touched: NDArray[np.uint64]) -> None:
        """Chunks at these places are those of version ``number`` now."""
        self.look(np.flatnonzero(np.isin(self._places, touched)), number)

    def look(self, at: NDArray[np.int64], number: int) -> None:
        """Compare some chunks."""
        same = digest_chunks(self._pieces, self.chunks[at]) == self.live[at]
        before = self.same[at]
        self.until[at[before & ~same]] = number - 1
        self.since[at[same & ~before]] = number
        self.same[at] = same

    def end(self, number: int) -> None:
        """Version ``number`` is the last one."""
        self.until[self.same] = number


class _Compared(Watch):
    """One window, on its way to the version, beside what live memory holds."""

    def __init__(
        self, sources: Sequence[Source], looks: list[tuple[int, ChunkList, Look]], steps: int
    ) -> None:
        self._sources = sources
        self._looks = looks
        self._steps = steps
        self.seen: list[_Seen] = []
        self.apart: list[Apart] = []
        self.nbytes = 0

    @classmethod
    async def start(cls, window: Window, sources: Sequence[Source], steps: int) -> _Compared:
        """Have at hand what the sources hold of a window."""
        looks = []
        for number, source in enumerate(sources):
            mine = window.chunks
            if not source.held.everything:
                mine = mine[np.isin(places_of(mine), places_of(source.held.chunks))]
            if len(mine):
                looks.append((number, mine, await source.look(mine)))
        return cls(sources, looks, steps)

    def begun(self, window: Window, weights: Weights) -> None:
        """Compare with the anchor."""
        self.nbytes = window.nbytes
        for number, chunks, look in self._looks:
            pieces = self._sources[number].held.pieces(chunks, weights.chunks)
            self.seen.append(_Seen(number, look.digests(), chunks, pieces))

    def stepped(self, applied: Applied) -> None:
        """Compare what changed."""
        touched = places_of(applied.batch.rows)
        for seen in self.seen:
            seen.stepped(applied.batch.step + 1, touched)

    def conclude(self, weights: Weights) -> None:
        """Compare with the version itself, and let live weights go."""
        for seen, (_, _, look) in zip(self.seen, self._looks, strict=True):
            seen.end(self._steps)
            self.apart += look.apart(weights.chunks, ~seen.same)
        self._looks = []


async def _conclude(
    log: Log, report: LiveReport, sources: Sequence[Source], summary: _Summary, versions: Sequence[int]
) -> None:
    """Which version it is instead, or which chunks are of which."""
    if report.ok:
        return
    counted: Counter[int | None] = Counter()
    for number, count in summary.newest.items():
        counted[None if number == _NONE else versions[number]] += count
    report.shares = {
        one: counted[one] for one in sorted(counted, key=lambda one: -1 if one is None else one, reverse=True)
    }
    if summary.common is not None:
        other = versions[summary.common]
        report.instead = other if other != report.version else None
    elif len(sources) == 1 and sources[0].held.everything:
        report.instead = await _by_digest(log, summary.digests[0] % MODULUS, sources[0].held.table)


async def _by_digest(log: Log, digest: int, table: TensorTable) -> int | None:
    """The newest version of the whole log that has this digest."""
    wanted = (digest_text(digest), table.sha256)
    async for record in log.backwards(await log.tip()):
        if isinstance(record, AnchorRecord | DeltaRecord) and (record.digest, record.table) == wanted:
            return record.version
    return None
