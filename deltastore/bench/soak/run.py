"""Streams one after the other, until the time is over or something is wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from deltastore.bench.place import own_place
from deltastore.bench.soak.episode import FAULTS, Episode
from deltastore.bench.soak.tally import Tally
from deltastore.stores.faults import Faults
from deltastore.stores.open import open_store

__all__ = ["soak"]

_EPISODE_SECONDS: Final = 20.0
"""A log grows by some hundred records meanwhile, and a new trainer may have to read all of it."""


async def soak(
    url: str,
    *,
    seconds: float,
    seed: int,
    plan: Faults = FAULTS,
    episode_seconds: float = _EPISODE_SECONDS,
    progress: Callable[[Tally], None] | None = None,
) -> Tally:
    """Soak for so long in places of its own in the store at ``url``; each is empty again at its end.

    The same seed gives the same trainers, readers and faults, as far as the store's timing does not change
    their order. ``progress`` is called after each stream. Ends at the first stream with a problem.
    """
    tally, began = Tally(), time.monotonic()
    while (left := seconds - tally.seconds) > 0 and not tally.problems:
        async with own_place(url, "soak") as place, open_store(place) as store:
            episode = Episode(store, seed * 1_000_003 + tally.streams, tally, plan)
            await episode.run(min(left, episode_seconds))
        tally.seconds = time.monotonic() - began
        if progress is not None:
            progress(tally)
    return tally
