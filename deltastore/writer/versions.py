"""Committing one version: everything it names is durable before its manifest exists."""

from __future__ import annotations

from collections.abc import Sequence

from deltastore.anchors.inventory import fetch_inventory
from deltastore.anchors.writing import write_anchor
from deltastore.format.digest import MODULUS, digest_text
from deltastore.format.records import (
    AnchorRecord,
    Certificate,
    DeltaRecord,
    FileRef,
    MetadataValue,
    PackRef,
    Statistics,
    table_key,
)
from deltastore.format.table import TensorTable
from deltastore.layout.weights import Weights
from deltastore.log import Manifest
from deltastore.stores.base import Store
from deltastore.writer.committing import Opened
from deltastore.writer.epoch import Epoch
from deltastore.writer.packing import Progress

__all__ = ["commit_anchor", "commit_delta", "digest_after"]


def digest_after(base: Manifest, difference: int) -> int:
    """The digest of what ``base`` becomes."""
    return (int(base.digest, 16) + difference) % MODULUS


async def commit_delta(
    epoch: Epoch,
    table: TensorTable,
    opened: Opened,
    *,
    packs: Sequence[PackRef],
    changed: int,
    difference: int,
    detector: str,
    certificate: Certificate | None,
    writers: int,
    metadata: dict[str, MetadataValue],
) -> DeltaRecord:
    """Append the manifest of a delta whose ``packs`` are durable. Raises what ``Epoch.commit`` raises."""
    if opened.base is None:
        raise ValueError("a delta on no base")
    return await epoch.commit(
        DeltaRecord,
        opened.version,
        nonce=opened.nonce,
        base=opened.base.version,
        table=table.sha256,
        writers=writers,
        packs=tuple(packs),
        digest=digest_text(digest_after(opened.base, difference)),
        statistics=Statistics(
            elements=table.elements,
            changed=changed,
            bytes=sum(pack.bytes for pack in packs),
            detector=detector,
            certificate=certificate,
        ),
        metadata=metadata,
    )


async def commit_anchor(
    store: Store,
    epoch: Epoch,
    weights: Weights,
    opened: Opened,
    *,
    digest: int,
    metadata: dict[str, MetadataValue],
    files: tuple[FileRef, ...] | None = None,
    progress: Progress | None = None,
) -> AnchorRecord:
    """Store ``weights``, which have ``digest`` and must not change meanwhile, and append their manifest.

    ``files`` must be in the store already; None: those that the newest anchor carries.
    """
    table = weights.table
    if await store.stat(table_key(table.sha256)) is None:
        await store.put(table_key(table.sha256), table.to_bytes())
    anchor = await write_anchor(store, opened.version, weights, progress=progress)
    inventory = await fetch_inventory(store, opened.version, anchor)
    return await epoch.commit(
        AnchorRecord,
        opened.version,
        nonce=opened.nonce,
        table=table.sha256,
        anchor=anchor,
        files=await epoch.carried_files() if files is None else files,
        digest=digest_text(digest),
        statistics=Statistics(
            elements=table.elements,
            changed=table.elements,
            bytes=sum(entry.bytes for entry in inventory.values()),
            detector="none",
        ),
        metadata=metadata,
    )
