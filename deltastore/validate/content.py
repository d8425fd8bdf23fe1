"""Checks of what manifests name: tables, packs, patches, anchors and carried files. One object at a time."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

import numpy as np

from deltastore.anchors.inventory import fetch_inventory
from deltastore.errors import CorruptError
from deltastore.format.pack import PackIndex, index_bytes, pack_key
from deltastore.format.patch import check_disjoint
from deltastore.format.records import AnchorRecord, DeltaRecord, PackRef, file_key, record_key
from deltastore.format.table import TensorTable
from deltastore.log import Manifest
from deltastore.replay import checked_index, read_table
from deltastore.stores.base import Store
from deltastore.stores.named import fetch_named
from deltastore.validate.report import Findings

__all__ = ["check_content"]

Positions = np.ndarray[Any, np.dtype[np.uint32]]


async def check_content(store: Store, manifests: list[Manifest], findings: Findings) -> None:
    """Every byte that the manifests name against its hash, every index and patch against its rules."""
    tables: dict[str, TensorTable] = {}
    for manifest in manifests:
        try:
            if manifest.table not in tables:
                tables[manifest.table] = await read_table(store, manifest.table)
            if isinstance(manifest, DeltaRecord):
                await _check_delta(store, manifest, tables[manifest.table], findings)
            else:
                await _check_anchor(store, manifest, findings)
        except CorruptError as error:
            findings.add(error, manifest.version)


async def _check_delta(store: Store, record: DeltaRecord, table: TensorTable, findings: Findings) -> None:
    where = record_key(record.slot)
    said, found = record.statistics.bytes, sum(pack.bytes for pack in record.packs)
    if said != found:
        raise CorruptError(
            "bad_json", f"{where}: statistics say {said} bytes, packs have {found}", where=where
        )
    if record.statistics.changed > sum(pack.count for pack in record.packs):
        raise CorruptError("bad_json", f"{where}: more changed elements than patches write", where=where)
    shared = _chunks_in_several(await _all_places(store, record, table))
    parts: dict[tuple[int, int], list[Positions]] = {}
    for pack in record.packs:
        try:
            await _check_pack(store, record, pack, table, shared, parts)
        except CorruptError as error:
            findings.add(error, record.version)
        findings.advance(pack.bytes)
    for (array, chunk), positions in parts.items():
        check_disjoint(positions, f"version {record.version} array {array} chunk {chunk}")


async def _all_places(store: Store, record: DeltaRecord, table: TensorTable) -> list[tuple[int, int]]:
    """(array, chunk) of every patch, where there is more than one pack; read from the indexes alone."""
    if len(record.packs) < 2:
        return []
    places: list[tuple[int, int]] = []
    for pack in record.packs:
        key = pack_key(record.version, pack.sha256)
        front = await store.get_range(key, 0, index_bytes(pack.rows))
        rows = PackIndex.parse(front, table, key).rows
        places.extend(zip(rows["array"].tolist(), rows["chunk"].tolist(), strict=True))
    return places


def _chunks_in_several(places: list[tuple[int, int]]) -> set[tuple[int, int]]:
    return {place for place, packs in Counter(places).items() if packs > 1}


async def _check_pack(
    store: Store,
    record: DeltaRecord,
    pack: PackRef,
    table: TensorTable,
    shared: set[tuple[int, int]],
    parts: dict[tuple[int, int], list[Positions]],
) -> None:
    key = pack_key(record.version, pack.sha256)
    named_by = f"version {record.version}"
    data = await fetch_named(store, key, nbytes=pack.bytes, sha256=pack.sha256, named_by=named_by)
    whole = memoryview(data)
    front = whole[: index_bytes(pack.rows)]
    if hashlib.sha256(front).hexdigest() != pack.index_sha256:
        raise CorruptError("bad_hash", f"the index of {key} does not match its hash", where=key)
    index = checked_index(front, record, pack, table)
    _check_slabs(index, pack, table, key)
    for _, row, start, end in index.patches():
        patch = index.read_patch(row, whole[start:end], table)
        place = (int(row["array"]), int(row["chunk"]))
        if place in shared:
            parts.setdefault(place, []).append(patch.positions)


def _check_slabs(index: PackIndex, pack: PackRef, table: TensorTable, key: str) -> None:
    ends = [index.rows[0], index.rows[-1]]
    slabs = tuple(
        int(table.arrays[int(row["array"])].slabs(np.array([int(row["chunk"])]), table.slabs)[0])
        for row in ends
    )
    if slabs != pack.slabs:
        raise CorruptError(
            "bad_index", f"{key} spans slabs {slabs}, its manifest says {pack.slabs}", where=key
        )


async def _check_anchor(store: Store, record: AnchorRecord, findings: Findings) -> None:
    prefix = record.anchor.prefix(record.version)
    inventory = await fetch_inventory(store, record.version, record.anchor)
    named = [(prefix + entry.key, entry.bytes, entry.sha256) for entry in inventory.values()]
    named += [(file_key(entry.sha256), entry.bytes, entry.sha256) for entry in record.files]
    for key, nbytes, sha256 in named:
        try:
            await fetch_named(store, key, nbytes=nbytes, sha256=sha256, named_by=f"version {record.version}")
        except CorruptError as error:
            findings.add(error, record.version)
        findings.advance(nbytes)
