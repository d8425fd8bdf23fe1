"""Anchors for zarr-python: any store of deltastore as a store of Zarr (extra ``zarr``).

    group = zarr.open_group(await anchor_store(open_store("s3://bucket/stream")), mode="r")

What zarr-python reads this way is checked by the CRC-32C of every chunk, not by the sha256 of the anchor's
inventory; :class:`deltastore.anchors.AnchorWeights` checks both the objects and that none is missing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Self

from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.core.buffer import Buffer

from deltastore.anchors.bfloat16 import register
from deltastore.anchors.chunk_sums import SUMS_KEY
from deltastore.anchors.inventory import INVENTORY_KEY
from deltastore.anchors.together import together
from deltastore.errors import CorruptError, InputError, NotFoundError
from deltastore.format.limits import OBJECT_BYTES
from deltastore.format.records import AnchorRecord
from deltastore.log import Log
from deltastore.stores.base import Store as DeltaStore
from deltastore.stores.base import check_key, check_prefix
from deltastore.stores.open import open_store

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import BufferPrototype

__all__ = ["ZarrStore", "anchor_store"]


class ZarrStore(Store):
    """What is under ``prefix`` in a store, as zarr-python wants it: keys are relative to the prefix.

    Read-only unless ``read_only=False``: the objects of an anchor never change. The store stays the
    caller's, who closes it. ``limit``: bytes of the largest object that is read whole. ``hidden``: keys that
    are absent for zarr-python, whatever the store has under them.

    A key that no store takes (:func:`deltastore.stores.check_key`), such as ``../x`` or Zarr v2's
    ``.zarray``, is absent: it is not found, not listed, and deleting it does nothing. Storing under it raises
    ``InputError("bad_key")``. Beside those of zarr-python, operations raise what the store raises, and
    ``CorruptError("too_large")`` for an object above ``limit``.
    """

    supports_writes: bool = True
    supports_deletes: bool = True
    supports_listing: bool = True

    def __init__(
        self,
        store: DeltaStore,
        prefix: str = "",
        *,
        read_only: bool = True,
        limit: int = OBJECT_BYTES,
        hidden: frozenset[str] = frozenset(),
    ) -> None:
        """Raise ``InputError("bad_key")`` for a prefix that no key starts with."""
        super().__init__(read_only=read_only)
        self._store = store
        self._prefix = check_prefix(f"{prefix.rstrip('/')}/") if prefix else ""
        self._limit = limit
        self._hidden = hidden

    def with_read_only(self, read_only: bool = False) -> Self:
        """The same objects, to be changed or not."""
        return type(self)(
            self._store, self._prefix, read_only=read_only, limit=self._limit, hidden=self._hidden
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ZarrStore) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __repr__(self) -> str:
        return f"ZarrStore({self._store.url!r}, {self._prefix!r}, read_only={self.read_only})"

    __str__ = __repr__

    def __reduce__(self) -> tuple[object, ...]:
        """Sent to another process, it opens the store anew by its URL."""
        return (_reopened, self._identity)

    @property
    def _identity(self) -> tuple[str, str, bool, int, frozenset[str]]:
        return (self._store.url, self._prefix, self.read_only, self._limit, self._hidden)

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """An object, or the part of it that there is of a range; None where there is no object.

        A suffix, an offset, and a range that ends after the object take one request more.
        """
        if not self._takes(key):
            return None
        try:
            data = await self._read(self._prefix + key, byte_range)
        except NotFoundError:
            return None
        return prototype.buffer.from_bytes(data)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Several parts, fetched at once."""
        async with together() as group:
            tasks = [group.create_task(self.get(key, prototype, part)) for key, part in key_ranges]
        return [task.result() for task in tasks]

    async def exists(self, key: str) -> bool:
        """Whether there is such an object."""
        return self._takes(key) and await self._store.stat(self._prefix + key) is not None

    async def getsize(self, key: str) -> int:
        """Bytes of an object; ``FileNotFoundError``."""
        found = await self._store.stat(self._prefix + key) if self._takes(key) else None
        if found is None:
            raise FileNotFoundError(key)
        return found.size

    async def set(self, key: str, value: Buffer) -> None:
        """Create or replace an object; ``ValueError`` where the store is read-only."""
        await self._store.put(self._writable(key, value), value.to_bytes())

    async def set_if_not_exists(self, key: str, value: Buffer) -> None:
        """Create an object unless there is one, in one step; ``ValueError`` where the store is read-only."""
        await self._store.put_if_absent(self._writable(key, value), value.to_bytes())

    async def delete(self, key: str) -> None:
        """Remove an object, if there is one; ``ValueError`` where the store is read-only."""
        self._check_writable()
        if self._takes(key):
            await self._store.delete(self._prefix + key)

    def list(self) -> AsyncIterator[str]:
        """All keys."""
        return self.list_prefix("")

    async def list_prefix(self, prefix: str) -> AsyncIterator[str]:
        """The keys that start so, whether or not the prefix ends with a segment."""
        wanted = self._prefix + prefix
        if _is_prefix(wanted):
            async for info in self._store.list(wanted):
                key = info.key.removeprefix(self._prefix)
                if key not in self._hidden:
                    yield key

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        """The names of the objects and folders in a folder, each once."""
        folder = f"{prefix.rstrip('/')}/" if prefix.rstrip("/") else ""
        seen: set[str] = set()
        async for key in self.list_prefix(folder):
            name = key.removeprefix(folder).partition("/")[0]
            if name not in seen:
                seen.add(name)
                yield name

    async def _read(self, key: str, part: ByteRequest | None) -> bytes:
        if part is None:
            return await self._store.get(key, limit=self._limit)
        if isinstance(part, RangeByteRequest):
            try:
                return await self._store.get_range(key, part.start, part.end - part.start)
            except CorruptError as error:
                if error.code != "bad_length":
                    raise
        elif not isinstance(part, OffsetByteRequest | SuffixByteRequest):
            raise TypeError(f"Unexpected byte_range, got {part!r}")
        info = await self._store.stat(key)
        if info is None:
            raise NotFoundError("no_object", f"{key} is gone; open the array again", where=key)
        start, end = _bounds(part, info.size)
        return await self._store.get_range(key, start, end - start)

    def _writable(self, key: str, value: object) -> str:
        self._check_writable()
        if not isinstance(value, Buffer):
            raise TypeError(f"the value of {key!r} is a {type(value).__name__}, not a Buffer of zarr")
        if key in self._hidden:
            raise InputError("bad_key", f"{key} is kept for deltastore; take another name", where=key)
        return check_key(self._prefix + key)

    def _takes(self, key: str) -> bool:
        try:
            check_key(self._prefix + key)
        except InputError:
            return False
        return key not in self._hidden


async def anchor_store(store: DeltaStore, version: int | None = None) -> ZarrStore:
    """The group of an anchor, read-only: that of ``version``, or of the newest version stored whole.

    zarr-python knows bfloat16 from then on. Raises ``NotFoundError``: ``no_stream``, ``no_version``;
    ``InputError("bad_argument")`` for a version that is stored as a delta.
    """
    register()
    log = Log(store)
    if version is not None:
        record = await log.manifest(version)
        if isinstance(record, AnchorRecord):
            return _of(store, record)
        message = f"version {version} is stored as a delta: leave the version out for the newest anchor"
        raise InputError("bad_argument", message)
    async for found in log.backwards(await log.tip()):
        if isinstance(found, AnchorRecord):
            return _of(store, found)
    raise NotFoundError("no_version", f"{store.url} has no version yet: wait for the trainer's first one")


def _of(store: DeltaStore, record: AnchorRecord) -> ZarrStore:
    # zarr-python warns of an object in a group that is none of Zarr's.
    hidden = frozenset({INVENTORY_KEY, SUMS_KEY})
    return ZarrStore(store, record.anchor.prefix(record.version), hidden=hidden)


def _bounds(part: ByteRequest, size: int) -> tuple[int, int]:
    """First and last + 1 byte of what there is of ``part`` in an object of ``size`` bytes."""
    if isinstance(part, SuffixByteRequest):
        return max(size - part.suffix, 0), size
    if isinstance(part, OffsetByteRequest):
        return min(part.offset, size), size
    start = min(part.start, size)
    return start, max(start, min(part.end, size))


def _is_prefix(text: str) -> bool:
    try:
        check_prefix(text)
    except InputError:
        return False
    return True


def _reopened(url: str, prefix: str, read_only: bool, limit: int, hidden: frozenset[str]) -> ZarrStore:
    return ZarrStore(open_store(url), prefix, read_only=read_only, limit=limit, hidden=hidden)
