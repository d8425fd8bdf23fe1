"""The two S3 clients on the same work, in turns: aiobotocore (``s3://``) and obstore (``s3+obstore://``)."""

from __future__ import annotations

import importlib.util
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from deltastore.bench.figure import Figure
from deltastore.bench.place import below
from deltastore.bench.puts import at_once, put_all
from deltastore.errors import NotFoundError
from deltastore.stores.base import Store
from deltastore.stores.open import open_store

__all__ = ["compare_clients"]

_SCHEME: Final = "s3://"
_RIVAL: Final = "s3+obstore://"
_SMALL: Final = 256 << 10
_COUNT: Final = 64
_AT_ONCE: Final = 16
_POLLS: Final = 100
_LOOK: Final = "look"

Work = Callable[[Store], Awaitable[float]]


async def compare_clients(place: str, packs: list[int], uploads: int, repeats: int) -> list[Figure]:
    """How fast puts, gets and polls are beside obstore's. ``packs``: bytes of large objects.

    Nothing for a place that is not ``s3://``, and where obstore is not installed.
    """
    if not place.startswith(_SCHEME) or importlib.util.find_spec("obstore") is None:
        return []
    rival = _RIVAL + place.removeprefix(_SCHEME)
    found = []
    async with open_store(below(place, "ours")) as ours, open_store(below(rival, "theirs")) as theirs:
        for name, work in _works(packs, uploads):
            best = [float("inf"), float("inf")]
            for _ in range(repeats):
                for number, store in enumerate((ours, theirs)):
                    best[number] = min(best[number], await work(store))
            found.append(Figure(name, best[0] * 1000, "ms", best[1] / best[0], "the speed of obstore"))
    return found


def _works(packs: list[int], uploads: int) -> Iterator[tuple[str, Work]]:
    small = [_SMALL] * _COUNT
    for title, sizes, most in (
        (f"{_COUNT} x 256 KiB", small, _AT_ONCE),
        (f"{len(packs)} x {packs[0] / (1 << 20):g} MiB", packs, uploads),
    ):
        yield f"put {title}", _puts(sizes, most)
        yield f"get {title}", _gets(sizes, most)
    yield f"{_POLLS} polls, unchanged", _poll_unchanged
    yield f"{_POLLS} polls, absent", _poll_absent


def _puts(sizes: list[int], most: int) -> Work:
    async def work(store: Store) -> float:
        return await put_all(store, sizes, most, keep=True)

    return work


def _gets(sizes: list[int], most: int) -> Work:
    async def work(store: Store) -> float:
        keys = [f"plain/{number}" for number in range(len(sizes))]
        return await at_once(lambda key: store.get(key, limit=max(sizes)), keys, most)

    return work


async def _poll_unchanged(store: Store) -> float:
    await store.put(_LOOK, b"the same")
    found = await store.get_changed(_LOOK, tag=None, limit=_SMALL)
    tag = None if found is None else found.tag
    return await at_once(lambda _: store.get_changed(_LOOK, tag=tag, limit=_SMALL), range(_POLLS), 1)


async def _poll_absent(store: Store) -> float:
    async def look(_: int) -> None:
        try:
            await store.get("absent", limit=_SMALL)
        except NotFoundError:
            return

    return await at_once(look, range(_POLLS), 1)
