"""Does an object say what was written to it, whole and in part, and nothing once it is gone?"""

from __future__ import annotations

from typing import Final

from deltastore.errors import CorruptError, NotFoundError, StoreError
from deltastore.stores.base import Store
from deltastore.stores.probing.report import BrokenPromiseError
from deltastore.stores.probing.scratch import Scratch

__all__ = ["absent", "delete", "delete_twice", "large", "overwrite", "ranges", "unchanged", "write"]

# No byte is where another range would have it.
_BYTES: Final = bytes(range(256))
_LIMIT: Final = 1024
_LISTING: Final = "s3:ListBucket"


async def write(scratch: Scratch) -> str:
    """What was written is read at once."""
    store, key = scratch.store, scratch.key("written")
    await store.put(key, _BYTES)
    if await store.get(key, limit=_LIMIT) != _BYTES:
        raise BrokenPromiseError("an object that was just written has other bytes")
    found = await store.stat(key)
    if found is None or found.size != len(_BYTES):
        size = "no size" if found is None else f"{found.size} bytes"
        raise BrokenPromiseError(f"an object of {len(_BYTES)} bytes that was just written has {size}")
    return "an object is read as it was written, at once"


async def overwrite(scratch: Scratch) -> str:
    """The second content replaces the first, also when it is shorter."""
    store, key = scratch.store, scratch.key("overwritten")
    await store.put(key, _BYTES)
    await store.put(key, b"short")
    if await store.get(key, limit=_LIMIT) != b"short":
        raise BrokenPromiseError("an overwritten object is not what was written last")
    return "the last write is what is read"


async def ranges(scratch: Scratch) -> str:
    """Ranges are exact, and one beyond the end is an error."""
    store, key, size = scratch.store, scratch.key("ranged"), len(_BYTES)
    await store.put(key, _BYTES)
    for start, length in ((0, 1), (100, 56), (size - 8, 8), (0, size), (size, 0)):
        found = await store.get_range(key, start, length)
        if found != _BYTES[start : start + length]:
            raise BrokenPromiseError(f"{length} bytes from {start} of {size} are the wrong ones, or too many")
    for start in (size - 8, size + 8):
        if await _reads(store, key, start, 16):
            raise BrokenPromiseError(f"16 bytes from {start} of an object of {size} are no error")
    return "ranges are exact: in the middle, at the end, and refused beyond it"


async def _reads(store: Store, key: str, start: int, length: int) -> bool:
    try:
        await store.get_range(key, start, length)
    except CorruptError:
        return False
    return True


async def absent(scratch: Scratch) -> str:
    """A key that never had an object says so; an error would hide the end of a log."""
    key = scratch.key("never-written")
    try:
        found = await scratch.store.stat(key) is not None or await _has(scratch.store, key)
    except StoreError as error:
        # S3 hides what exists from whoever may not list, and answers 403.
        message = f"a key without an object is not answered as absent: {error}"
        if _LISTING not in message:
            message += f"; where that is 403, grant the permission to list ({_LISTING})"
        raise BrokenPromiseError(message) from error
    if found:
        raise BrokenPromiseError("a key that never had an object has one")
    return "a key without an object is answered as absent"


async def delete(scratch: Scratch) -> str:
    """What was deleted is gone at once."""
    store, key = scratch.store, scratch.key("deleted")
    await store.put(key, _BYTES)
    await store.delete(key)
    if await store.stat(key) is not None or await _has(store, key):
        raise BrokenPromiseError("an object that was just deleted is still there")
    return "a deleted object is gone at once"


async def delete_twice(scratch: Scratch) -> str:
    """Deleting what is gone, or never was, is no error."""
    store, key = scratch.store, scratch.key("deleted-twice")
    await store.put(key, _BYTES)
    for _ in range(2):
        await store.delete(key)
    await store.delete(scratch.key("never-deleted"))
    return "deleting an absent object is no error"


async def unchanged(scratch: Scratch) -> str:
    """An object that is still the same is told from one that has changed."""
    store, key = scratch.store, scratch.key("polled")
    await store.put(key, b"old")
    first = await store.get_changed(key, tag=None, limit=_LIMIT)
    if first is None or first.data != b"old":
        raise BrokenPromiseError("a read without a tag does not give the object")
    if await store.get_changed(key, tag=first.tag, limit=_LIMIT) is not None:
        raise BrokenPromiseError("an object that has not changed is read again each time")
    await store.put(key, b"new")
    second = await store.get_changed(key, tag=first.tag, limit=_LIMIT)
    if second is None or second.data != b"new":
        raise BrokenPromiseError("an object that has changed is said to be the same")
    return "an unchanged object is told from a changed one"


async def large(scratch: Scratch, nbytes: int) -> str:
    """An object of ``nbytes`` bytes arrives whole."""
    store, key = scratch.store, scratch.key("large")
    data = _BYTES * (nbytes // len(_BYTES)) + _BYTES[: nbytes % len(_BYTES)]
    await store.put(key, data)
    if await store.get(key, limit=nbytes) != data:
        raise BrokenPromiseError(f"an object of {nbytes} bytes is not read as it was written")
    return f"an object of {nbytes} bytes is read as it was written"


async def _has(store: Store, key: str) -> bool:
    try:
        await store.get(key, limit=_LIMIT)
    except NotFoundError:
        return False
    return True
