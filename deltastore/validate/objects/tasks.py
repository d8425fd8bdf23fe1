"""The objects that a manifest names, each as a task: how to look at it, and what is known if it is good."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from deltastore.anchors.opening import OpenedAnchor
from deltastore.anchors.shard_rules import Sums
from deltastore.format.listed import ListedObject
from deltastore.format.pack import pack_key
from deltastore.format.records import DeltaRecord, FileRef, file_key
from deltastore.format.table import TensorTable
from deltastore.stores.base import Store
from deltastore.validate.objects.anchors import OBJECT_CHECKS, SHARD_CHECKS, SUMS_CHECKS, shards_of
from deltastore.validate.objects.packs import PACK_CHECKS, CheckedPack, check_pack, pack_memory
from deltastore.validate.objects.streamed import PIECE_BYTES, Named, StreamedObject

__all__ = ["Task", "tasks_of_delta", "tasks_of_files", "tasks_of_inventory", "tasks_of_shards"]


@dataclass(frozen=True, slots=True)
class Task:
    """One object to look at. ``memory``: bytes that it takes; ``checks``: what it keeps to if it is good."""

    key: str
    nbytes: int
    memory: int
    checks: tuple[str, ...]
    check: Callable[[], Awaitable[CheckedPack | None]]


def tasks_of_delta(store: Store, record: DeltaRecord, table: TensorTable | None) -> Iterator[Task]:
    """All packs; without the table, which is bad, no more than their hashes."""
    for pack in record.packs:
        key = pack_key(record.version, pack.sha256)
        if table is None:
            named = Named(key, pack.bytes, pack.sha256, f"version {record.version}", "DS061")
            yield _hashed(store, named, ())
        else:
            check = partial(check_pack, store, record.version, pack, table)
            yield Task(key, pack.bytes, pack_memory(pack, table), PACK_CHECKS, check)


def tasks_of_shards(
    store: Store, opened: OpenedAnchor, table: TensorTable, sums: list[Sums] | None
) -> Iterator[Task]:
    """All shards of an anchor whose metadata is good."""
    checks = SHARD_CHECKS if sums is None else SHARD_CHECKS + SUMS_CHECKS
    for key, shard in shards_of(opened, table, sums):
        named = _entry(opened.prefix, opened.entries[key])
        check = partial(shard.check, store, named)
        yield Task(named.key, named.nbytes, shard.memory(named.nbytes), checks, check)


def tasks_of_inventory(store: Store, prefix: str, entries: Mapping[str, ListedObject]) -> Iterator[Task]:
    """All objects of an anchor whose metadata is bad: no more than their hashes."""
    for entry in entries.values():
        yield _hashed(store, _entry(prefix, entry), OBJECT_CHECKS)


def tasks_of_files(store: Store, files: tuple[FileRef, ...], version: int) -> Iterator[Task]:
    """All carried files."""
    for file in files:
        named = Named(file_key(file.sha256), file.bytes, file.sha256, f"version {version}", "DS063")
        yield _hashed(store, named, ())


def _entry(prefix: str, entry: ListedObject) -> Named:
    return Named(prefix + entry.key, entry.bytes, entry.sha256, "its inventory", "DS073")


def _hashed(store: Store, named: Named, checks: tuple[str, ...]) -> Task:
    check = StreamedObject(store, named).finish
    return Task(named.key, named.nbytes, min(named.nbytes, PIECE_BYTES), checks, check)
