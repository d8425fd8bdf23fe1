"""Committing one version: everything it names is durable before its manifest exists."""

from __future__ import annotations

from collections.abc import Mapping

from deltastore.anchors.inventory import fetch_inventory
from deltastore.anchors.writing import write_anchor
from deltastore.detect.changes import Detector
from deltastore.errors import CorruptError
from deltastore.format.digest import MODULUS, digest_text
from deltastore.format.records import (
    AnchorRecord,
    DeltaRecord,
    FileRef,
    MetadataValue,
    Statistics,
    check_metadata,
    table_key,
)
from deltastore.layout.weights import Weights, digest_of
from deltastore.log import Manifest, new_nonce
from deltastore.stores.base import Store
from deltastore.writer.epoch import Epoch, choose_version
from deltastore.writer.packing import PACK_TARGET_BYTES, Progress, upload_changes

__all__ = ["Metadata", "Progress", "commit_anchor", "commit_delta"]

Metadata = Mapping[str, MetadataValue]


async def commit_delta(
    store: Store,
    epoch: Epoch,
    base: Manifest,
    new: Weights,
    detector: Detector,
    *,
    version: int | None = None,
    metadata: Metadata | None = None,
    pack_bytes: int = PACK_TARGET_BYTES,
    expected_digest: int | None = None,
    progress: Progress | None = None,
) -> DeltaRecord:
    """Publish what ``detector`` finds as a delta on ``base``.

    ``expected_digest`` is the digest that the new weights are known to have: a delta that would not lead
    there is never committed (``CorruptError("bad_digest")``). Raises ``FencedError`` or ``ConflictError``.
    """
    notes = check_metadata(metadata or {})
    await epoch.catch_up()
    number = choose_version(epoch.newest_version, version)
    nonce = new_nonce()
    try:
        uploaded = await upload_changes(
            store, new.table, detector, number, nonce, target_bytes=pack_bytes, progress=progress
        )
        digest = (int(base.digest, 16) + uploaded.difference) % MODULUS
        if expected_digest is not None and digest != expected_digest:
            raise CorruptError(
                "bad_digest",
                f"version {base.version} as stored does not replay to its digest: "
                "run 'deltastore validate' to find the bad object",
            )
        record = await epoch.commit(
            DeltaRecord,
            number,
            nonce=nonce,
            base=base.version,
            table=new.table.sha256,
            writers=1,
            packs=tuple(uploaded.packs),
            digest=digest_text(digest),
            statistics=Statistics(
                elements=new.table.elements,
                changed=uploaded.changed,
                bytes=uploaded.nbytes,
                detector=detector.name,
            ),
            metadata=notes,
        )
    except BaseException:
        detector.aborted()
        raise
    detector.committed()
    return record


async def commit_anchor(
    store: Store,
    epoch: Epoch,
    weights: Weights,
    *,
    version: int | None = None,
    files: tuple[FileRef, ...] | None = None,
    metadata: Metadata | None = None,
    progress: Progress | None = None,
) -> AnchorRecord:
    """Publish ``weights`` whole. They must not change meanwhile.

    ``files`` must be in the store already; None: those that the newest anchor carries.
    """
    notes = check_metadata(metadata or {})
    await epoch.catch_up()
    number = choose_version(epoch.newest_version, version)
    table = weights.table
    await store.put(table_key(table.sha256), table.to_bytes())
    anchor = await write_anchor(store, number, weights, progress=progress)
    inventory = await fetch_inventory(store, number, anchor)
    return await epoch.commit(
        AnchorRecord,
        number,
        nonce=new_nonce(),
        table=table.sha256,
        anchor=anchor,
        files=await epoch.carried_files() if files is None else files,
        digest=digest_text(await digest_of(weights)),
        statistics=Statistics(
            elements=table.elements,
            changed=table.elements,
            bytes=sum(entry.bytes for entry in inventory.values()),
            detector="none",
        ),
        metadata=notes,
    )
