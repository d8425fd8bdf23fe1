"""The operations of a store by name, and what tests of stores say often."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from deltastore.stores import Store

Operation = Callable[[Store, str], Awaitable[object]]
OPERATIONS: dict[str, Operation] = {
    "get": lambda store, key: store.get(key, limit=9),
    "get_range": lambda store, key: store.get_range(key, 0, 1),
    "put": lambda store, key: store.put(key, b"x"),
    "put_if_absent": lambda store, key: store.put_if_absent(key, b"x"),
    "delete": lambda store, key: store.delete(key),
    "stat": lambda store, key: store.stat(key),
}


async def keys_of(store: Store, prefix: str = "", after: str | None = None) -> list[str]:
    """Return the keys that the store lists."""
    return [info.key async for info in store.list(prefix, after=after)]


def files_below(root: Path) -> list[str]:
    """Return the paths of all files below ``root``, temporary ones included."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir())


def refusal(number: int) -> OSError:
    """Return the error that the operating system raises with this ``errno``."""
    return OSError(number, os.strerror(number))
