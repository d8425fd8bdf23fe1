"""Votes that are not what they should be."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from deltastore.format.votes import Vote

from .teams import Team

__all__ = ["Forger", "changed", "forged_votes"]

Forger = Callable[[Vote], Vote | None]


@asynccontextmanager
async def forged_votes(team: Team, rank: int, forge: Forger) -> AsyncIterator[None]:
    """What one rank puts as its vote is replaced; None: the vote never arrives."""
    store = team.ranks[rank].store
    real = store.put_if_absent

    async def put_if_absent(key: str, data: Any) -> bool:
        if not key.startswith("prepared/") or not key.endswith(f"{rank:05d}.json"):
            return await real(key, data)
        vote = forge(Vote.from_bytes(bytes(data), key))
        if vote is not None:
            await store.inner.put_if_absent(key, vote.to_bytes())
        return True

    store.put_if_absent = put_if_absent  # type: ignore[method-assign]
    yield
    store.put_if_absent = real  # type: ignore[method-assign]


def changed(vote: Vote, **changes: Any) -> Vote:
    """The same vote with other members, sealed again."""
    return Vote.seal_new(**{**vote.model_dump(exclude={"format", "kind", "sha256"}), **changes})
