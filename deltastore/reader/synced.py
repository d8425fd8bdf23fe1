"""What a reader says that it did, and how it is kept from doing it while the engine works."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

__all__ = ["Pause", "Synced", "Tally"]

Pause = Callable[[], AbstractAsyncContextManager[None]]
"""Makes a context in which the engine does not touch its weights."""


@dataclass(frozen=True, slots=True)
class Synced:
    """What one ``sync`` did.

    ``version`` is now in memory, ``previous`` was before (None: nothing was). ``nbytes`` were fetched in
    ``requests``, beside those for the log; ``changed`` elements written (of a shard on a GPU: at most);
    ``seconds`` in all, ``pause_seconds`` of them inside the pause.
    """

    version: int
    previous: int | None
    nbytes: int
    changed: int
    seconds: float
    pause_seconds: float
    requests: int


@dataclass(slots=True)
class Tally:
    """What the steps of one ``sync`` add up to."""

    nbytes: int = 0
    requests: int = 0
    changed: int = 0
    pause_seconds: float = 0.0
