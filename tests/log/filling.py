"""Logs of any length, without any weights."""

from __future__ import annotations

from deltastore.format.records import BirthRecord, DeltaRecord, EpochRecord, Record, Statistics
from deltastore.log import Log, new_nonce
from deltastore.stores.base import Store


async def born(store: Store) -> BirthRecord:
    """The birth record of a new stream."""
    return await Log(store).append(BirthRecord, None, epoch=0, stream=new_nonce())


async def filled(store: Store, length: int) -> list[Record]:
    """A log of ``length`` records: a birth, and epochs."""
    log = Log(store)
    records: list[Record] = [await born(store)]
    while len(records) < length:
        records.append(
            await log.append(
                EpochRecord, records[-1], epoch=len(records), resumes=None, writer=f"w{len(records)}"
            )
        )
    return records


async def append_version(store: Store, parent: Record, version: int, base: int) -> DeltaRecord:
    """A manifest without packs, right but for its base, which is not there."""
    return await Log(store).append(
        DeltaRecord,
        parent,
        epoch=parent.epoch,
        version=version,
        base=base,
        table="0" * 64,
        digest="0" * 16,
        writers=1,
        packs=(),
        statistics=Statistics(elements=1, changed=0, bytes=0, detector="none"),
        metadata={},
    )
