"""Checks of what a manifest names without its weights: table, inventory, and all objects in their lengths."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from deltastore.anchors.inventory import INVENTORY_KEY, fetch_inventory
from deltastore.anchors.opening import OpenedAnchor, open_anchor
from deltastore.errors import CorruptError, DeltastoreError, InputError, StoreError
from deltastore.format.pack import pack_key
from deltastore.format.records import AnchorRecord, DeltaRecord, file_key, record_key, table_key
from deltastore.format.table import TensorTable
from deltastore.log import Log, Manifest
from deltastore.replay import read_table
from deltastore.stores.base import Store
from deltastore.stores.named import lost_object, wrong_length
from deltastore.validate.chain import Committed
from deltastore.validate.report import BAD_OBJECT, Findings

__all__ = ["Tables", "check_structure", "read_again"]

JSON_CHECKS: Final = ("DS010", "DS011", "DS012", "DS013")
TABLE_CHECKS: Final = (*JSON_CHECKS, "DS020", "DS021", "DS022", "DS023", "DS024", "DS025")
OBJECT_CHECKS: Final = ("DS001", "DS063", "DS100")


class Tables:
    """The tables of a stream, each read and checked once as long as versions in a row have it."""

    def __init__(self, store: Store, findings: Findings) -> None:
        self._store = store
        self._findings = findings
        self._turn = asyncio.Lock()
        self._newest: TensorTable | None = None
        self._counted: set[str] = set()
        self._bad: dict[str, DeltastoreError] = {}

    async def _read(self, sha256: str) -> TensorTable:
        """Read a table. One that is bad may be large: it is not read again for every version that has it."""
        try:
            return await read_table(self._store, sha256)
        except BAD_OBJECT as error:
            error.where = error.where or table_key(sha256)
            self._bad[sha256] = error
            raise

    async def get(self, sha256: str) -> TensorTable:
        """The table of this hash; raises ``CorruptError``. Memory: one table, and who still uses another."""
        async with self._turn:
            if sha256 in self._bad:
                raise self._bad[sha256]
            if self._newest is None or self._newest.sha256 != sha256:
                self._newest = None
                self._newest = await self._read(sha256)
                self._findings.passed(TABLE_CHECKS, int(sha256 not in self._counted))
                self._counted.add(sha256)
            return self._newest


async def read_again(store: Store, committed: Committed) -> Manifest:
    """The record of a version once more; ``CorruptError("bad_chain")`` where it is another than before."""
    record = await Log(store).record(committed.slot)
    where = record_key(committed.slot)
    if record is None:
        raise lost_object(where, "the walk over the log")
    if not isinstance(record, AnchorRecord | DeltaRecord) or record.sha256 != committed.sha256:
        message = f"{where} has changed since the log was read"
        raise CorruptError("bad_chain", message, where=where, rule="DS006")
    return record


async def check_structure(store: Store, record: Manifest, tables: Tables, findings: Findings) -> None:
    """What the manifest of one version names, as far as it can be known without reading weights."""
    structure = _Structure(store, record, findings)
    table = None
    try:
        table = await tables.get(record.table)
    except BAD_OBJECT as error:
        structure.add(error)
    if isinstance(record, DeltaRecord):
        await structure.of_delta(record, table)
    else:
        await structure.of_anchor(record, table)


class _Structure:
    """The structure of one version."""

    def __init__(self, store: Store, record: Manifest, findings: Findings) -> None:
        self._store = store
        self._record = record
        self._findings = findings
        self._named_by = f"version {record.version}"

    def add(self, error: DeltastoreError, *, named: bool = True) -> None:
        """Note a problem."""
        self._findings.add(error, self._record.version, named=named)

    def _knows(self, key: str | None) -> bool:
        return self._findings.knows(self._record.version, key)

    async def of_delta(self, record: DeltaRecord, table: TensorTable | None) -> None:
        """Statistics, and all packs in their lengths."""
        said, packs = record.statistics, record.packs
        if said.changed > (most := sum(pack.count for pack in packs)):
            self._add_false(f"{said.changed} changed elements, its patches write {most}")
        elif self._is_true(table, sum(pack.bytes for pack in packs)):
            self._findings.passed(("DS064",))
        named = {pack_key(record.version, pack.sha256): pack.bytes for pack in packs}
        if named:
            async for _ in self._there(next(iter(named)).rpartition("/")[0] + "/", named, "DS061"):
                pass

    async def of_anchor(self, record: AnchorRecord, table: TensorTable | None) -> None:
        """Inventory and metadata, statistics, and all objects in their lengths, with no other beside them."""
        opened = None
        try:
            if table is not None:
                opened = await open_anchor(self._store, record.version, record.anchor, table)
        except BAD_OBJECT as error:
            self.add(error)
        try:
            entries = await self._entries(record, opened)
        except BAD_OBJECT as error:
            if not self._knows(error.where):
                self.add(error)
        else:
            self._findings.passed(JSON_CHECKS)
            await self._of_objects(record, table, entries)
        for file in record.files:
            await self._is_there(file_key(file.sha256), file.bytes, "DS063")

    async def _entries(self, record: AnchorRecord, opened: OpenedAnchor | None) -> dict[str, int]:
        """Bytes of every object of the inventory, by key."""
        if opened is None:
            entries = await fetch_inventory(self._store, record.version, record.anchor)
            return {entry.key: entry.bytes for entry in entries.values()}
        found = {entry.key: entry.bytes for entry in opened.entries.values()}
        return found if opened.sums is None else {**found, opened.sums.key: opened.sums.bytes}

    async def _of_objects(
        self, record: AnchorRecord, table: TensorTable | None, entries: dict[str, int]
    ) -> None:
        if self._is_true(table, sum(entries.values())):
            self._findings.passed(("DS064",))
        prefix, before = record.anchor.prefix(record.version), self._findings.found
        named = {prefix + key: nbytes for key, nbytes in entries.items()}
        async for key in self._there(prefix, named, "DS073"):
            if key != prefix + INVENTORY_KEY and not self._knows(key):
                message = f"{key} is under an anchor whose inventory does not name it"
                self.add(CorruptError("bad_anchor", message, where=key, rule="DS072"), named=False)
        if self._findings.found == before:
            self._findings.passed(("DS072",))

    def _is_true(self, table: TensorTable | None, nbytes: int) -> bool:
        """Whether the statistics say these bytes, and the elements of the table."""
        said, before = self._record.statistics, self._findings.found
        if said.bytes != nbytes:
            self._add_false(f"{said.bytes} bytes, there are {nbytes}")
        elif table is not None and said.elements != table.elements:
            self._add_false(f"{said.elements} elements, there are {table.elements}")
        elif isinstance(self._record, AnchorRecord) and said.changed != said.elements:
            self._add_false(f"{said.changed} changed elements of the {said.elements} that an anchor has")
        found = said.certificate
        if found is not None and found.uncertain > found.inverted:
            self._add_false(f"{found.uncertain} uncertain elements of {found.inverted} inverted ones")
        elif found is not None and max(found.settled, found.unexplained) > found.blocks:
            few = f"{found.settled} blocks settled and {found.unexplained} unexplained"
            self._add_false(f"{few}, of {found.blocks}")
        return table is not None and self._findings.found == before

    def _add_false(self, said: str) -> None:
        where = record_key(self._record.slot)
        message = f"{where}: its statistics say {said}"
        self.add(CorruptError("bad_json", message, where=where, rule="DS064"))

    async def _there(self, prefix: str, named: dict[str, int], rule: str) -> AsyncIterator[str]:
        """Whether the named objects, all under ``prefix``, are there in their lengths; yields any other keys.

        One listing: an object that it lacks is asked for by itself, since a listing may lag.
        """
        refused, before = None, self._findings.found
        try:
            async for found in self._store.list(prefix):
                if found.key in named:
                    self._check_length(found.key, named.pop(found.key), found.size, rule)
                else:
                    yield found.key
        except InputError as error:
            refused = error
        for key, nbytes in named.items():
            await self._is_there(key, nbytes, rule)
        if refused is not None and self._findings.found == before:
            self.add(refused)

    async def _is_there(self, key: str, nbytes: int, rule: str) -> None:
        if self._knows(key):
            return
        try:
            info = await self._store.stat(key)
        except BAD_OBJECT as error:
            if isinstance(error, CorruptError):
                error.rule = rule
            self.add(error if error.where == key else _of_object(error, key))
            return
        if info is None:
            self.add(lost_object(key, self._named_by))
        else:
            self._check_length(key, nbytes, info.size, rule)

    def _check_length(self, key: str, said: int, found: int, rule: str) -> None:
        if found == said:
            self._findings.passed(OBJECT_CHECKS)
        elif not self._knows(key):
            self.add(wrong_length(key, found, said, self._named_by, rule))


def _of_object(error: DeltastoreError, key: str) -> DeltastoreError:
    """What is wrong with a folder above an object, of that object."""
    kind = StoreError if isinstance(error, StoreError) else InputError
    return kind(error.code, f"{key}: {error}", where=key, rule=error.rule)
