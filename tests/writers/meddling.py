"""A process that has no business in an epoch: it objects to attempts, and votes in the name of others."""

from __future__ import annotations

from deltastore.format.votes import Attempt, Ending, Vote
from deltastore.stores.base import Store
from deltastore.writer.attempts import objection_key, vote_key
from deltastore.writer.exchange import create_sealed, fetch_sealed

from .teams import Team

__all__ = ["meddle"]


async def meddle(store: Store, team: Team, *, votes: bool) -> None:
    """Object to the newest attempt, or vote for it as rank 1, without what rank 1 has changed."""
    keys = [info.key async for info in store.list("prepared/") if info.key.endswith("/attempt.json")]
    attempt = await fetch_sealed(store, keys[-1], Attempt) if keys else None
    if attempt is None:
        return
    if not votes:
        key = objection_key(attempt.epoch, attempt.attempt)
        await create_sealed(store, key, Ending.seal_new(rank=1, reason="no reason at all"))
    elif len(team.ranks) > 1 and attempt.epoch == team.writer(1).epoch:
        vote = Vote.seal_new(
            attempt=attempt.sha256,
            rank=1,
            nonce="f" * 32,
            epoch_nonce=attempt.epoch_nonce,
            parent=attempt.parent,
            step=attempt.step,
            claim=team.writer(1)._committing._join.claim,  # type: ignore[attr-defined]
            packs=(),
            changed=0,
            difference="0" * 16,
            detector="snapshot",
        )
        await create_sealed(store, vote_key(attempt.epoch, attempt.attempt, 1), vote)
