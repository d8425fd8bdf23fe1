"""What the stream around an object says of it: the record that names it, and its tensor table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from deltastore.errors import DeltastoreError, NotFoundError
from deltastore.format.records import AnchorRecord, DeltaRecord, FileRef, record_key
from deltastore.format.table import TensorTable
from deltastore.inspect.found import Inspection
from deltastore.inspect.source import Source
from deltastore.log import Log, Manifest
from deltastore.replay import ReplayedWeights, find_path, read_table
from deltastore.stores.base import Store

__all__ = ["Surroundings"]

T = TypeVar("T")


class Surroundings:
    """The stream that an object stands in, as far as it can be read; what fails is a note, not a problem."""

    def __init__(self, source: Source, into: Inspection) -> None:
        self._store = source.store
        self._into = into

    @property
    def store(self) -> Store | None:
        """The stream's store, if the object's place says where that is."""
        return self._store

    async def manifest(self) -> Manifest | None:
        """The manifest of the version that the object's key names."""
        if self._store is None or self._into.key is None:
            return None
        version, log = int(self._into.key.split("/")[1]), Log(self._store)
        try:
            return await log.manifest(version)
        except DeltastoreError as error:
            self._cannot_use("the log", error)
            if isinstance(error, NotFoundError):
                return None
        # What is wrong may stand behind the version: the log is read from its start as well.
        with suppress(DeltastoreError):
            async for record in log.forwards():
                if isinstance(record, AnchorRecord | DeltaRecord) and record.version >= version:
                    return record if record.version == version else None
        return None

    def named_by(self, manifest: Manifest) -> None:
        """Say that this manifest names the object."""
        self._into.facts["named_by"] = {"record": record_key(manifest.slot), "version": manifest.version}

    def unnamed(self, what: str, manifest: Manifest) -> None:
        """Say that the manifest of its version names another one."""
        self._into.notes.append(
            f"no record names this {what}: version {manifest.version} has others, and an interrupted or "
            "beaten writer left it"
        )

    async def table(self, manifest: Manifest | None) -> TensorTable | None:
        """The table of a version."""
        if self._store is None or manifest is None:
            return None
        return await self._noted("the table", read_table(self._store, manifest.table))

    async def base_weights(self, manifest: Manifest | None) -> ReplayedWeights | None:
        """The weights of the version that a delta builds on."""
        if self._store is None or not isinstance(manifest, DeltaRecord):
            return None
        return await self._noted("the weights of the base", self._replayed(self._store, manifest))

    async def users_of_table(self, sha256: str) -> list[int]:
        """The versions that have a table, ascending."""
        return (await self._of_manifests(lambda record: [record.version] * (record.table == sha256)))[::-1]

    async def carried_as(self, sha256: str) -> list[FileRef]:
        """What records say of a carried file, each thing once."""

        def said(record: Manifest) -> list[FileRef]:
            files = record.files if isinstance(record, AnchorRecord) else ()
            return [file for file in files if file.sha256 == sha256]

        return list(dict.fromkeys(await self._of_manifests(said)))

    async def _of_manifests(self, tell: Callable[[Manifest], list[T]]) -> list[T]:
        """What is to be told of each version, the newest first; records are let go."""
        if self._store is None:
            return []
        log, told = Log(self._store), list[T]()

        async def read() -> None:
            async for record in log.backwards(await log.tip()):
                if isinstance(record, AnchorRecord | DeltaRecord):
                    told.extend(tell(record))

        await self._noted("the log", read())
        return told

    async def _replayed(self, store: Store, manifest: DeltaRecord) -> ReplayedWeights:
        log = Log(store)
        path = await find_path(log, await log.manifest(manifest.base, last=manifest))
        return await ReplayedWeights.open(store, path, await read_table(store, manifest.table))

    async def _noted(self, what: str, answer: Awaitable[T]) -> T | None:
        try:
            return await answer
        except DeltastoreError as error:
            self._cannot_use(what, error)
            return None

    def _cannot_use(self, what: str, error: DeltastoreError) -> None:
        self._into.notes.append(f"{what} of its stream cannot be used: {error}")
