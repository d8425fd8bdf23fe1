"""What validation says of an object that its stream names, said first: both call one thing the same."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from deltastore.errors import CorruptError, UnsupportedError
from deltastore.inspect.found import Inspection
from deltastore.stores.base import Store
from deltastore.stores.named import wrong_length
from deltastore.validate.objects.streamed import Named, StreamedObject

__all__ = ["judge", "judge_bytes"]


async def judge(into: Inspection, named: Named, check: Callable[[], Awaitable[Any]] | None) -> bool:
    """Whether the object has the length that is said of it, and ``check`` finds nothing wrong."""
    if into.size != named.nbytes:
        into.wrong(wrong_length(named.key, into.size, named.nbytes, named.named_by, named.rule))
        return False
    try:
        if check is not None:
            await check()
    except (CorruptError, UnsupportedError) as error:
        into.wrong(error)
        return False
    return True


async def judge_bytes(into: Inspection, named: Named, store: Store) -> bool:
    """The same of an object of which the hash is all that there is to check."""
    return await judge(into, named, StreamedObject(store, named).finish)
