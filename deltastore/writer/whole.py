"""Publishing weights that are not live: a checkpoint becomes a stream, or its next version."""

from __future__ import annotations

import time
from typing import Final

from deltastore.detect.difference import Difference
from deltastore.errors import ConflictError, CorruptError
from deltastore.format.records import AnchorRecord, BirthRecord, FileRef, check_label, check_metadata
from deltastore.layout.weights import Weights, digest_of
from deltastore.log import Log, SlotTakenError, new_nonce
from deltastore.replay import ReplayedWeights, find_path
from deltastore.stores.base import Store
from deltastore.writer.committing import Metadata, Opened
from deltastore.writer.epoch import Epoch, choose_version
from deltastore.writer.fitness import check_fit
from deltastore.writer.packing import Packing, Progress, upload_changes
from deltastore.writer.published import Published
from deltastore.writer.versions import commit_anchor, commit_delta, digest_after

__all__ = ["create_stream", "publish_weights", "refuse_existing"]

_PACKING: Final = Packing(uploads=3)
"""Fewer packs than a trainer sends at once: shards of the version before are in memory too."""


async def create_stream(
    store: Store,
    weights: Weights,
    *,
    version: int | None = None,
    files: tuple[FileRef, ...] = (),
    metadata: Metadata | None = None,
    label: str = "",
    progress: Progress | None = None,
) -> Published:
    """Make the store a stream whose first version is ``weights``, stored whole.

    A stream that was born but never got a version (its creator was stopped) is taken over. Raises
    ``ConflictError("exists")`` for a stream with versions.
    """
    started = time.perf_counter()
    _check_request(version, metadata, label)
    log = Log(store)
    await check_fit(store)
    await _ensure_birth(log)
    await refuse_existing(store)
    epoch = await Epoch.begin(log, resumes=None, label=label)
    _refuse_versions(store, epoch.newest_version)
    record = await _store_whole(store, epoch, weights, version, metadata, files, progress)
    return Published.of(record, time.perf_counter() - started)


async def _store_whole(
    store: Store,
    epoch: Epoch,
    weights: Weights,
    version: int | None,
    metadata: Metadata | None,
    files: tuple[FileRef, ...],
    progress: Progress | None,
) -> AnchorRecord:
    return await commit_anchor(
        store,
        epoch,
        weights,
        Opened(choose_version(epoch.newest_version, version), new_nonce(), None),
        digest=await digest_of(weights),
        metadata=check_metadata(metadata or {}),
        files=files,
        progress=progress,
    )


def _check_request(version: int | None, metadata: Metadata | None, label: str) -> None:
    """Refuse what no record can hold before anything is written, and before anybody is fenced."""
    choose_version(None, version)
    check_metadata(metadata or {})
    check_label(label)


async def refuse_existing(store: Store) -> None:
    """``ConflictError("exists")`` for a store that holds a stream with versions."""
    log = Log(store)
    if await log.record(0) is not None:
        newest = await log.manifest_before(await log.tip())
        _refuse_versions(store, None if newest is None else newest.version)


def _refuse_versions(store: Store, newest: int | None) -> None:
    if newest is not None:
        raise ConflictError(
            "exists",
            f"{store.url} is a stream already, at version {newest}: use 'deltastore publish', or another URL",
        )


async def _ensure_birth(log: Log) -> None:
    if await log.record(0) is not None:
        return
    try:
        await log.append(BirthRecord, None, epoch=0, stream=new_nonce())
    except SlotTakenError:
        await log.birth()


async def publish_weights(
    store: Store,
    weights: Weights,
    *,
    version: int | None = None,
    metadata: Metadata | None = None,
    label: str = "",
    progress: Progress | None = None,
) -> Published:
    """Commit ``weights`` as the next version: a delta against the tip, read chunk by chunk from the store.

    ``weights`` are read twice: once for the changes, and once for a digest that the delta must lead to.
    Raises ``ConflictError``, ``CorruptError`` when the tip as stored is damaged.
    """
    started = time.perf_counter()
    _check_request(version, metadata, label)
    log = Log(store)
    base = await log.manifest_before(await log.tip())
    await check_fit(store)
    choose_version(None if base is None else base.version, version)
    if base is None:
        epoch = await _begin_after(log, None, label)
        first = await _store_whole(store, epoch, weights, version, metadata, (), progress)
        return Published.of(first, time.perf_counter() - started)
    path = await find_path(log, base)
    old = await ReplayedWeights.open(store, path, weights.table)
    expected = await digest_of(weights)
    epoch = await _begin_after(log, base.version, label)
    opened = Opened(choose_version(epoch.newest_version, version), new_nonce(), base)
    detector = Difference(weights, old)
    uploaded = await upload_changes(
        store,
        weights.table,
        detector.changes(),
        opened.version,
        opened.nonce,
        packing=_PACKING,
        progress=progress,
    )
    if digest_after(base, uploaded.difference) != expected:
        raise CorruptError(
            "bad_digest",
            f"version {base.version} as stored does not replay to its digest: "
            "run 'deltastore validate' to find the bad object",
            rule="DS062",
        )
    record = await commit_delta(
        epoch,
        weights.table,
        opened,
        packs=uploaded.packs,
        changed=uploaded.changed,
        difference=uploaded.difference,
        detector=detector.name,
        certificate=None,
        writers=1,
        metadata=check_metadata(metadata or {}),
    )
    return Published.of(record, time.perf_counter() - started)


async def _begin_after(log: Log, base: int | None, label: str) -> Epoch:
    epoch = await Epoch.begin(log, resumes=base, label=label)
    if epoch.newest_version != base:
        raise ConflictError(
            "version_taken",
            f"version {epoch.newest_version} was published meanwhile: run the command again to follow it",
        )
    return epoch
