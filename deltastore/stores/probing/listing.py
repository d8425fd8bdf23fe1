"""Does a listing give every key once, in order, and from where it is told?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from deltastore.stores.base import Store
from deltastore.stores.probing.report import BrokenPromiseError
from deltastore.stores.probing.scratch import Scratch

__all__ = ["list_after", "list_order"]

# In byte order of the whole key: "-" and "." come before "/". A walk over folders that compares names alone
# gives a/b first.
_NAMES: Final = ("B", "_", "a-b", "a.b", "a/b", "a/c/d", "a0", "ab", "b/0", "b/00")


async def list_order(scratch: Scratch) -> str:
    """Every key comes once, in byte order of the whole key."""
    folder = await _written(scratch)
    _expect("listed", await _listed(scratch.store, folder), _NAMES)
    # A prefix may end inside a segment.
    _expect("listed below 'a'", await _listed(scratch.store, folder, "a"), _NAMES[2:8])
    return f"{len(_NAMES)} keys come once each, in byte order"


async def list_after(scratch: Scratch) -> str:
    """A listing starts behind the key it is told, which need not exist."""
    folder = await _written(scratch)
    for after, first in (("a.b", 4), ("a/a", 4), ("a/c", 5), ("b/00", 10)):
        _expect(f"listed after {after}", await _listed(scratch.store, folder, after=after), _NAMES[first:])
    return "a listing starts behind any key"


async def _written(scratch: Scratch) -> str:
    for name in _NAMES:
        await scratch.store.put(scratch.key(f"list/{name}"), b"x")
    return f"{scratch.folder}list/"


async def _listed(store: Store, folder: str, prefix: str = "", *, after: str | None = None) -> list[str]:
    beyond = None if after is None else folder + after
    keys = [info.key async for info in store.list(folder + prefix, after=beyond)]
    return [key.removeprefix(folder) for key in keys]


def _expect(what: str, found: Sequence[str], wanted: Sequence[str]) -> None:
    if list(found) == list(wanted):
        return
    if sorted(found) == sorted(wanted):
        raise BrokenPromiseError(f"keys are {what} out of order: {' '.join(found)}")
    lost = sorted(set(wanted) - set(found))
    told = f"{' '.join(lost)} missing" if lost else "some come twice, or do not belong"
    raise BrokenPromiseError(f"{len(found)} of {len(wanted)} keys are {what}: {told}")
