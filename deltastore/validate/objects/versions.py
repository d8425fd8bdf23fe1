"""What manifests name, version by version: the objects of several are looked at side by side."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field

from deltastore.anchors.chunk_sums import split_sums
from deltastore.anchors.in_order import in_order
from deltastore.anchors.inventory import fetch_inventory, fetch_object
from deltastore.anchors.opening import OpenedAnchor, open_anchor
from deltastore.anchors.shard_rules import Sums
from deltastore.errors import DeltastoreError, StoreError
from deltastore.format.records import AnchorRecord, DeltaRecord, record_key
from deltastore.format.table import TensorTable
from deltastore.stores.base import Store
from deltastore.validate.chain import Committed
from deltastore.validate.objects.packs import CheckedPack
from deltastore.validate.objects.room import Room
from deltastore.validate.objects.shared import SHARED_MEMORY, check_shared
from deltastore.validate.objects.tasks import (
    Task,
    tasks_of_delta,
    tasks_of_files,
    tasks_of_inventory,
    tasks_of_shards,
)
from deltastore.validate.report import BAD_OBJECT, Findings
from deltastore.validate.structure import Tables, read_again

__all__ = ["CheckedVersion", "Content"]


@dataclass(slots=True)
class CheckedVersion:
    """What was found of one version. ``difference``: the sum of those of all its rows mod 2**64, if known."""

    committed: Committed
    findings: Findings = field(default_factory=Findings)
    difference: int | None = None

    def add(self, error: DeltastoreError) -> None:
        """Note a problem."""
        self.findings.add(error, self.committed.version)


class Content:
    """The content of versions. ``before`` is what was found at level structure, which is not found again.

    Its progress goes on with the bytes of each object once that is done with. ``opened``: bytes that records
    and inventories may take at once.
    """

    def __init__(
        self,
        store: Store,
        tables: Tables,
        room: Room,
        before: Findings,
        *,
        opened: int,
    ) -> None:
        self._store = store
        self._tables = tables
        self._room = room
        self._before = before
        self._advance = before.advance
        self._open = Room(2 * room.jobs, opened)
        self._ahead = 2 * room.jobs

    async def check(self, versions: Iterable[Committed]) -> AsyncGenerator[CheckedVersion, None]:
        """Look at every byte of these versions; their results, in order."""
        async with aclosing(in_order(versions, self._version, ahead=self._ahead)) as checked:
            async for one in checked:
                yield one

    async def _version(self, committed: Committed) -> CheckedVersion:
        checked = CheckedVersion(committed, self._before.apart())
        async with self._open.of(committed.memory):
            await self._look_at(committed, checked)
        return checked

    async def _look_at(self, committed: Committed, checked: CheckedVersion) -> None:
        try:
            record = await read_again(self._store, committed)
            if isinstance(record, DeltaRecord):
                await self._delta(record, await self._table(record.table, checked), checked)
            else:
                await self._anchor(record, await self._table(record.table, checked), checked)
                await self._run(tasks_of_files(self._store, record.files, record.version), checked)
        except StoreError as error:
            self._note(error, checked)
        except BAD_OBJECT as error:
            checked.add(error)

    def _note(self, error: DeltastoreError, checked: CheckedVersion) -> None:
        """Note a problem unless it is known of this object and version."""
        if not self._is_known(checked, error.where):
            checked.add(error)

    def _is_known(self, checked: CheckedVersion, key: str | None) -> bool:
        return self._before.knows(checked.committed.version, key)

    async def _table(self, sha256: str, checked: CheckedVersion) -> TensorTable | None:
        """The table, or None for one that is bad, which is noted."""
        try:
            return await self._tables.get(sha256)
        except BAD_OBJECT as error:
            self._note(error, checked)
            return None

    async def _delta(self, record: DeltaRecord, table: TensorTable | None, checked: CheckedVersion) -> None:
        good = await self._run(tasks_of_delta(self._store, record, table), checked)
        if table is None or len(good) < len(record.packs):
            return
        checked.difference = sum(pack.difference for pack in good) % (1 << 64)
        async with self._room.of(SHARED_MEMORY):
            await check_shared(self._store, record.version, record_key(record.slot), table, good)
        checked.findings.passed(("DS045",))

    async def _anchor(self, record: AnchorRecord, table: TensorTable | None, checked: CheckedVersion) -> None:
        opened = sums = None
        bad: set[str | None] = set()
        try:
            if table is not None:
                opened = await open_anchor(self._store, record.version, record.anchor, table)
                sums = await self._sums(opened, record.anchor.inventory_bytes, table, checked)
        except BAD_OBJECT as error:
            bad.add(error.where)
            self._note(error, checked)
        if opened is not None and table is not None and not bad:
            await self._run(tasks_of_shards(self._store, opened, table, sums), checked)
            return
        try:
            entries = await fetch_inventory(self._store, record.version, record.anchor)
        except BAD_OBJECT as error:
            if error.where not in bad:
                self._note(error, checked)
            return
        prefix = record.anchor.prefix(record.version)
        await self._run(tasks_of_inventory(self._store, prefix, entries), checked, bad)

    async def _sums(
        self, opened: OpenedAnchor, inventory_bytes: int, table: TensorTable, checked: CheckedVersion
    ) -> list[Sums] | None:
        """The sums of an anchor that has any; counts what opening it has looked at."""
        objects = 1 + len(opened.grids)
        checked.findings.passed(("DS071", "DS073"), objects)
        self._advance(opened.nbytes - inventory_bytes)
        if opened.sums is None:
            return None
        data = await fetch_object(self._store, opened.prefix, opened.sums)
        self._advance(len(data))
        checked.findings.passed(("DS073",))
        return split_sums(data, table)

    async def _run(
        self, tasks: Iterable[Task], checked: CheckedVersion, known: Collection[str | None] = ()
    ) -> list[CheckedPack]:
        """Look at these objects, as many side by side as there is room for; the packs that are good."""
        good: list[CheckedPack] = []

        async def looked_at(task: Task) -> tuple[Task, CheckedPack | DeltastoreError | None]:
            return task, await self._looked_at(task, checked)

        async with aclosing(in_order(tasks, looked_at, ahead=self._ahead)) as done:
            async for task, found in done:
                if isinstance(found, DeltastoreError):
                    if task.key not in known:
                        checked.add(found)
                    continue
                if self._is_known(checked, task.key):
                    continue
                checked.findings.passed(task.checks)
                if found is not None:
                    good.append(found)
        return good

    async def _looked_at(self, task: Task, checked: CheckedVersion) -> CheckedPack | DeltastoreError | None:
        found: CheckedPack | DeltastoreError | None = None
        if not self._is_known(checked, task.key):
            async with self._room.of(task.memory):
                try:
                    found = await task.check()
                except BAD_OBJECT as error:
                    found = error
        self._advance(task.nbytes)
        return found
