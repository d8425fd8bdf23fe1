"""The levels of a validation, one after another: a level runs only on what the level before found sound."""

from __future__ import annotations

from deltastore.format.records import AnchorRecord, DeltaRecord
from deltastore.log import Manifest
from deltastore.stores.base import Store
from deltastore.validate.chain import check_chain
from deltastore.validate.content import check_content
from deltastore.validate.replaying import check_by_replay
from deltastore.validate.report import Findings, Progress, Report

__all__ = ["validate"]


async def validate(store: Store, *, progress: Progress | None = None) -> Report:
    """Check the whole stream.

    ``progress`` is called with (bytes done, bytes in all). Raises ``NotFoundError("no_stream")``,
    ``UnsupportedError`` for a newer format and ``StoreError``; everything else that is wrong is in the
    report, the first bad object first.
    """
    findings = Findings(progress)
    chain = await check_chain(store, findings)
    manifests: list[Manifest] = list(chain.manifests.values())
    anchors = [record for record in manifests if isinstance(record, AnchorRecord)]
    packs = [pack for record in manifests if isinstance(record, DeltaRecord) for pack in record.packs]
    nbytes = sum(pack.bytes for pack in packs) + sum(record.statistics.bytes for record in anchors)
    findings.total = nbytes + sum(record.statistics.bytes for record in anchors)
    if not findings.problems:
        await check_content(store, manifests, findings)
    if not findings.problems:
        await check_by_replay(store, manifests, findings)
    return Report(
        records=chain.records,
        versions=len(manifests),
        anchors=len(anchors),
        packs=len(packs),
        nbytes=nbytes,
        problems=tuple(findings.problems),
    )
