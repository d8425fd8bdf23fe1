"""An object that is hashed as a whole and looked at piece by piece, with one piece in memory."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import CorruptError, UnsupportedError
from deltastore.stores.base import Store
from deltastore.stores.named import fetch_range, fetch_sized

__all__ = ["PIECE_BYTES", "Named", "StreamedObject", "cut"]

PIECE_BYTES: Final = 8 << 20

_AT_ONCE_BYTES: Final = 64 << 10
"""Up to here a thread costs more than what it would do."""

TOGETHER_BYTES: Final = 4 << 20
"""Up to here a second thread gains nothing: other objects are looked at meanwhile."""

Look = Callable[[memoryview, int], None]
"""Looks at bytes that start at an offset of the object. Raises ``CorruptError`` or ``UnsupportedError``."""


@dataclass(frozen=True, slots=True)
class Named:
    """An object by key, and what is said of it; ``rule`` is the requirement that it be so.

    ``named_by`` says in a few words what names it.
    """

    key: str
    nbytes: int
    sha256: str
    named_by: str
    rule: str


class StreamedObject:
    """One object, read from its first byte to its last. An object of at most ``piece`` bytes is one request.

    Pieces of more than ``together`` bytes are hashed in one thread and looked at in another.

    ``damage`` is the first thing that was wrong with what was looked at. Nothing is looked at after it, but
    all bytes are hashed: whether the object is the one named is to be known first.
    """

    def __init__(
        self, store: Store, named: Named, *, piece: int = PIECE_BYTES, together: int = TOGETHER_BYTES
    ) -> None:
        self._store = store
        self._piece = piece
        self._together = together
        self._hash = hashlib.sha256()
        self._at = 0
        self._whole: memoryview | None = None
        self.named = named
        self.damage: CorruptError | UnsupportedError | None = None

    async def read(self, start: int, end: int) -> memoryview:
        """Some bytes, for whoever checks them; they are not hashed here.

        Raises ``CorruptError`` (``lost_object``, ``too_large``, ``bad_length``).
        """
        named = self.named
        if named.nbytes <= self._piece:
            if self._whole is None:
                found = await fetch_sized(
                    self._store, named.key, nbytes=named.nbytes, named_by=named.named_by, rule=named.rule
                )
                self._whole = memoryview(found)
            return self._whole[start:end]
        found = await fetch_range(
            self._store, named.key, start, end - start, named_by=named.named_by, rule=named.rule
        )
        return memoryview(found)

    async def advance(self, end: int, look: Look | None = None) -> None:
        """Read on to ``end``, in one piece, and let ``look`` see it unless something was wrong before."""
        start, self._at = self._at, end
        data = await self.read(start, end)
        wanted = look if self.damage is None else None
        if wanted is not None and len(data) > self._together:
            await asyncio.gather(
                asyncio.to_thread(self._hash.update, data), asyncio.to_thread(self._look, wanted, data, start)
            )
        elif len(data) <= _AT_ONCE_BYTES:
            self._hash_and_look(wanted, data, start)
        else:
            await asyncio.to_thread(self._hash_and_look, wanted, data, start)

    async def finish(self) -> None:
        """Read what is left, and judge.

        Raises ``CorruptError("bad_hash")`` where the object is not the one named, and says where it was found
        to be damaged, if it was; else ``damage``.
        """
        for end in cut(self._at, self.named.nbytes, (), (), self._piece):
            await self.advance(end)
        if self._hash.hexdigest() != self.named.sha256:
            raise self._another()
        if self.damage is not None:
            raise self.damage

    def _hash_and_look(self, look: Look | None, data: memoryview, start: int) -> None:
        self._hash.update(data)
        if look is not None:
            self._look(look, data, start)

    def _look(self, look: Look, data: memoryview, start: int) -> None:
        try:
            look(data, start)
        except (CorruptError, UnsupportedError) as error:
            self.damage = error

    def _another(self) -> CorruptError:
        named, damage = self.named, self.damage
        message = f"{named.key} does not have the sha256 that {named.named_by} names"
        if damage is None:
            return CorruptError("bad_hash", message, where=named.key, rule=named.rule)
        return CorruptError(
            "bad_hash",
            f"{message}: {str(damage).removeprefix(f'{named.key}: ')}",
            where=named.key,
            rule=named.rule,
            offset=damage.offset,
            tensor=damage.tensor,
        )


def cut(
    start: int,
    end: int,
    starts: NDArray[np.int64] | tuple[()],
    ends: NDArray[np.int64] | tuple[()],
    piece: int,
) -> Iterator[int]:
    """Where to cut ``[start, end)``: the ends of pieces of about ``piece`` bytes, none through a part.

    Parts ``[starts, ends)`` ascend, do not overlap and lie inside. A piece is longer than ``piece`` only
    where a single part is.
    """
    at = start
    while end - at > piece:
        wanted = at + piece
        inside = int(np.searchsorted(starts, wanted, "left")) - 1
        if inside >= 0 and ends[inside] > wanted:
            # A part that the cut would fall into: the cut is before it or, where it is longer, behind it.
            wanted = int(starts[inside]) if starts[inside] > at else int(ends[inside])
        at = wanted
        yield at
    if end > start or start == 0:
        yield end
