"""The writer: live tensors in, versions out."""

from __future__ import annotations

import asyncio
import operator
import time
from dataclasses import dataclass
from typing import Literal, SupportsIndex

from deltastore.detect.snapshot import Snapshot
from deltastore.errors import InputError
from deltastore.format.digest import digest_text
from deltastore.format.records import check_metadata
from deltastore.format.table import TensorTable
from deltastore.kernels.threads import chosen_threads
from deltastore.layout.cutting import plain_table
from deltastore.layout.live import LiveWeights, live_specs
from deltastore.layout.memory import LiveTensors
from deltastore.layout.weights import digest_of
from deltastore.log import Log, Manifest
from deltastore.replay import read_table
from deltastore.stores.base import Store
from deltastore.writer.epoch import Epoch, choose_version, find_resumed
from deltastore.writer.packing import PACK_TARGET_BYTES, check_pack_bytes
from deltastore.writer.versions import Metadata, Progress, commit_anchor, commit_delta

__all__ = ["AsyncWriter", "Published", "open_writer"]


@dataclass(frozen=True, slots=True)
class Published:
    """A version that is committed: durable, and visible to every reader.

    ``changed`` of ``elements`` elements changed; ``nbytes`` were uploaded in packs (an anchor: in all its
    objects); ``manifest_bytes`` is the size of the record; ``seconds`` the time from call to commit.
    """

    version: int
    kind: Literal["delta", "anchor"]
    slot: int
    changed: int
    elements: int
    nbytes: int
    manifest_bytes: int
    seconds: float

    @classmethod
    def of(cls, record: Manifest, seconds: float) -> Published:
        """What a manifest says, and how long it took."""
        return cls(
            version=record.version,
            kind=record.kind,
            slot=record.slot,
            changed=record.statistics.changed,
            elements=record.statistics.elements,
            nbytes=record.statistics.bytes,
            manifest_bytes=len(record.to_bytes()),
            seconds=seconds,
        )


class AsyncWriter:
    """One trainer incarnation that publishes its live tensors. Made by ``open_writer``.

    It keeps a copy of what was last published (the snapshot detector). Calls take turns; the tensors must
    not change while ``publish`` runs.
    """

    def __init__(
        self,
        store: Store,
        epoch: Epoch,
        live: LiveWeights,
        detector: Snapshot,
        base: Manifest | None,
        pack_bytes: int,
    ) -> None:
        self._store = store
        self._epoch = epoch
        self._live = live
        self._detector = detector
        self._base = base
        self._pack_bytes = pack_bytes
        self._turn = asyncio.Lock()

    @property
    def version(self) -> int | None:
        """The version that the next delta is based on; None when the next version will be an anchor."""
        return None if self._base is None else self._base.version

    @property
    def epoch(self) -> int:
        """The number of this incarnation."""
        return self._epoch.number

    async def publish(
        self,
        *,
        version: int | None = None,
        step: SupportsIndex | None = None,
        metadata: Metadata | None = None,
        anchor: bool = False,
        progress: Progress | None = None,
    ) -> Published:
        """Commit the tensors as they are now as a new version.

        ``version``: default the last one + 1. ``step`` goes into the metadata. ``anchor=True`` stores the
        version whole. Raises ``InputError``, ``ConflictError("version_taken")`` and ``FencedError``, and
        nothing was published; ``StoreError``, and the version may be visible all the same: the next call
        finds out. Whatever was raised, the same changes are part of the next call.
        """
        started = time.perf_counter()
        notes = check_metadata({**(metadata or {}), **({} if step is None else {"step": _whole(step)})})
        async with self._turn:
            self._live.check_in_place()
            if self._epoch.in_doubt:
                await self._settle()
            whole = anchor or self._base is None
            record = await (self._anchor if whole else self._delta)(version, notes, progress)
            self._base = record
        return Published.of(record, time.perf_counter() - started)

    async def _settle(self) -> None:
        """Learn whether a version was committed whose reply was lost; the snapshot is older then.

        Tensors that still are that version are its next base. Else what it held is not known here any more,
        and the next version is stored whole.
        """
        await self._epoch.catch_up()
        landed, self._epoch.landed = self._epoch.landed, None
        if landed is not None:
            self._base = None
            await self._detector.retake()
            if digest_text(await digest_of(self._detector.published)) == landed.digest:
                self._base = landed

    async def _anchor(self, version: int | None, notes: Metadata, progress: Progress | None) -> Manifest:
        # Before the snapshot, which knows the base, is given up.
        await self._epoch.catch_up()
        choose_version(self._epoch.newest_version, version)
        self._base = None
        await self._detector.retake()
        return await commit_anchor(
            self._store,
            self._epoch,
            self._detector.published,
            version=version,
            metadata=notes,
            progress=progress,
        )

    async def _delta(self, version: int | None, notes: Metadata, progress: Progress | None) -> Manifest:
        if self._base is None:
            raise ValueError("a delta on no base")
        return await commit_delta(
            self._store,
            self._epoch,
            self._base,
            self._live,
            self._detector,
            version=version,
            metadata=notes,
            pack_bytes=self._pack_bytes,
            progress=progress,
        )


def _whole(step: SupportsIndex) -> int:
    """A step as an integer; NumPy's and torch's integers are fine."""
    try:
        return operator.index(step)
    except TypeError:
        raise InputError("bad_argument", f"a step is an integer, not {step!r:.80}") from None


async def open_writer(
    store: Store,
    tensors: LiveTensors,
    *,
    resumes: int | None = None,
    cast: bool = False,
    label: str = "",
    pack_bytes: int = PACK_TARGET_BYTES,
    threads: int | None = None,
) -> AsyncWriter:
    """Begin a new epoch of the stream in ``store`` and fence every earlier writer.

    ``tensors``: live tensors by checkpoint name, all that the stream has. ``cast``: F32 tensors may stand
    for BF16 or F16 ones. The version whose digest equals that of ``tensors`` is the first base; where none
    does, the first version will be an anchor. ``resumes`` insists on one version:
    ``InputError("bad_argument")`` when the tensors are not its weights. ``pack_bytes``: a pack is closed once
    it is that large. ``threads``: how many may compare and encode at once; None: one for each processor, but
    at most 8.

    Raises ``NotFoundError("no_stream")``, ``StoreError("store_unfit")``, ``InputError``.
    """
    check_pack_bytes(pack_bytes)
    workers = chosen_threads(threads)
    log = Log(store)
    tip = await log.tip()
    newest = await log.manifest_before(tip)
    if newest is None:
        table = plain_table(live_specs(tensors, cast="BF16" if cast else None))
    else:
        table = await read_table(store, newest.table)
    live = LiveWeights(table, tensors, cast=cast)
    detector = await Snapshot.of(live, threads=workers)
    digest = digest_text(await digest_of(detector.published, threads=workers))
    base = await find_resumed(log, tip, table.sha256, digest)
    if resumes is not None and (base is None or base.version != resumes):
        base = await _insisted(log, table, digest, resumes)
    epoch = await Epoch.begin(log, resumes=None if base is None else base.version, label=label)
    return AsyncWriter(store, epoch, live, detector, base, pack_bytes)


async def _insisted(log: Log, table: TensorTable, digest: str, version: int) -> Manifest:
    record = await log.manifest(version)
    if (record.table, record.digest) != (table.sha256, digest):
        raise InputError(
            "bad_argument",
            f"the tensors given are not the weights of version {version}: their digest is {digest}, "
            f"its is {record.digest}; load that version first, or leave resumes out",
        )
    return record
