"""One attempt to read an object or a range of one through obstore: lengths first, then bytes."""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING, Final

import obstore

from deltastore.stores.base import Tagged, too_large, too_short
from deltastore.stores.hashing import sha256
from deltastore.stores.objects.requests import Answer
from deltastore.stores.retrying import TransientError

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult
    from obstore.store import ObjectStore

__all__ = ["read_object", "read_range"]

#: Starts a tag where the server gives none. No ETag starts like this: they are in quotes.
_OURS: Final = "sha256:"
_PIECE_BYTES: Final = 1024 * 1024


async def read_object(
    store: ObjectStore, answer: Answer, path: str, key: str, *, limit: int, tag: str | None
) -> Tagged:
    """The object and its tag. Raises ``CorruptError("too_large")`` by the announced length."""
    options: GetOptions = {} if tag is None or tag.startswith(_OURS) else {"if_none_match": tag}
    reply: GetResult = await answer(obstore.get_async(store, path, options=options))
    size = reply.meta["size"]
    if size > limit:
        raise too_large(key, size, limit)
    data = await _read(answer, reply, size)
    return Tagged(data, reply.meta["e_tag"] or _OURS + (await sha256(data)).hex())


async def read_range(
    store: ObjectStore, answer: Answer, path: str, key: str, start: int, length: int
) -> bytes:
    """The bytes ``[start, start + length)``, at least one. Raises ``CorruptError("bad_length")``."""
    options: GetOptions = {"range": (start, start + length)}
    reply: GetResult = await answer(obstore.get_async(store, path, options=options))
    size = reply.meta["size"]
    if start + length > size:
        raise too_short(key, size, start, length)
    if tuple(reply.range) != (start, start + length):
        raise TransientError("the server answers another range than asked", unknown=False)
    return await _read(answer, reply, length)


async def _read(answer: Answer, reply: GetResult, length: int) -> bytes:
    found = io.BytesIO()
    stream = reply.stream(min_chunk_size=_PIECE_BYTES)
    with contextlib.suppress(StopAsyncIteration):
        while found.tell() <= length:
            found.write(await answer(anext(stream)))
    if found.tell() != length:
        raise TransientError(f"the reply has {found.tell()} bytes of {length}", unknown=False)
    return found.getvalue()
