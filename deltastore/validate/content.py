"""Checks of what manifests name: tables, packs, patches, anchors and carried files. One object at a time."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

import numpy as np

from deltastore.anchors.inventory import fetch_inventory
from deltastore.errors import CorruptError, PatchError
from deltastore.format.pack import pack_key
from deltastore.format.patch import check_disjoint
from deltastore.format.records import AnchorRecord, DeltaRecord, PackRef, file_key, record_key
from deltastore.format.table import TensorTable
from deltastore.kernels.cpu import check
from deltastore.log import Manifest
from deltastore.replay import checked_index, fetch_pack_index, read_table
from deltastore.stores.base import Store
from deltastore.stores.named import fetch_named
from deltastore.validate.report import BAD_OBJECT, Findings

__all__ = ["check_content"]

Positions = np.ndarray[Any, np.dtype[np.uint32]]


async def check_content(store: Store, manifests: list[Manifest], findings: Findings) -> None:
    """Every byte that the manifests name against its hash, every index and patch against its rules."""
    tables: dict[str, TensorTable] = {}
    for manifest in manifests:
        try:
            if manifest.table not in tables:
                tables[manifest.table] = await read_table(store, manifest.table)
            table = tables[manifest.table]
            _check_said(manifest, "elements", manifest.statistics.elements, table.elements)
            if isinstance(manifest, DeltaRecord):
                await _check_delta(store, manifest, table, findings)
            else:
                await _check_anchor(store, manifest, findings)
        except BAD_OBJECT as error:
            findings.add(error, manifest.version)


def _check_said(record: Manifest, what: str, said: int, found: int) -> None:
    if said != found:
        where = record_key(record.slot)
        message = f"{where}: its statistics say {said} {what}, there are {found}"
        raise CorruptError("bad_json", message, where=where)


async def _check_delta(store: Store, record: DeltaRecord, table: TensorTable, findings: Findings) -> None:
    where = record_key(record.slot)
    _check_said(record, "bytes", record.statistics.bytes, sum(pack.bytes for pack in record.packs))
    if record.statistics.changed > sum(pack.count for pack in record.packs):
        raise CorruptError("bad_json", f"{where}: more changed elements than patches write", where=where)
    shared = _chunks_in_several(await _all_places(store, record, table))
    parts: dict[tuple[int, int], list[Positions]] = {}
    for pack in record.packs:
        try:
            await _check_pack(store, record, pack, table, shared, parts)
        except BAD_OBJECT as error:
            findings.add(error, record.version)
        findings.advance(pack.bytes)
    for positions in parts.values():
        check_disjoint(positions, where)


async def _all_places(store: Store, record: DeltaRecord, table: TensorTable) -> list[tuple[int, int]]:
    """(array, chunk) of every patch, where there is more than one pack; read from the indexes alone."""
    if len(record.packs) < 2:
        return []
    places: list[tuple[int, int]] = []
    for pack in record.packs:
        # What is wrong with a pack is found when it is checked whole.
        with contextlib.suppress(CorruptError):
            rows = (await fetch_pack_index(store, record.version, pack, table)).rows
            places.extend(zip(rows["array"].tolist(), rows["chunk"].tolist(), strict=True))
    return places


def _chunks_in_several(places: list[tuple[int, int]]) -> set[tuple[int, int]]:
    return {place for place, times in Counter(places).items() if times > 1}


async def _check_pack(
    store: Store,
    record: DeltaRecord,
    pack: PackRef,
    table: TensorTable,
    shared: set[tuple[int, int]],
    parts: dict[tuple[int, int], list[Positions]],
) -> None:
    """Check a pack whole, and note where it patches shared chunks."""
    key = pack_key(record.version, pack.sha256)
    named_by = f"version {record.version}"
    data = await fetch_named(store, key, nbytes=pack.bytes, sha256=pack.sha256, named_by=named_by)
    whole = memoryview(data)
    index = checked_index(data, record.version, pack, table)
    try:
        check(table.kernels, index.rows, index.body(whole, table))
    except PatchError as error:
        raise index.named(error, table) from None
    if shared:
        for _, row, start, end in index.patches():
            place = (int(row["array"]), int(row["chunk"]))
            if place in shared:
                parts.setdefault(place, []).append(index.read_patch(row, whole[start:end], table).positions)


async def _check_anchor(store: Store, record: AnchorRecord, findings: Findings) -> None:
    prefix = record.anchor.prefix(record.version)
    inventory = await fetch_inventory(store, record.version, record.anchor)
    _check_said(record, "bytes", record.statistics.bytes, sum(entry.bytes for entry in inventory.values()))
    named = [(prefix + entry.key, entry.bytes, entry.sha256) for entry in inventory.values()]
    named += [(file_key(entry.sha256), entry.bytes, entry.sha256) for entry in record.files]
    for key, nbytes, sha256 in named:
        try:
            await fetch_named(store, key, nbytes=nbytes, sha256=sha256, named_by=f"version {record.version}")
        except BAD_OBJECT as error:
            findings.add(error, record.version)
        findings.advance(nbytes)
