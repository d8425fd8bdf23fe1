"""Where the objects of an attempt stand, and what makes a vote count (SPEC section "Several writers")."""

from __future__ import annotations

from deltastore.format.votes import Attempt, Join, Vote, attempt_prefix, writer_name

__all__ = ["aborted_key", "attempt_key", "objection_key", "vote_key", "vote_problem"]


def attempt_key(epoch: int, attempt: int) -> str:
    """What opens an attempt."""
    return attempt_prefix(epoch, attempt) + "attempt.json"


def vote_key(epoch: int, attempt: int, rank: int) -> str:
    """A writer's vote."""
    return attempt_prefix(epoch, attempt) + writer_name(rank)


def objection_key(epoch: int, attempt: int) -> str:
    """Why some writer cannot vote: the coordinator decides what follows."""
    return attempt_prefix(epoch, attempt) + "objection.json"


def aborted_key(epoch: int, attempt: int) -> str:
    """The coordinator's word that the attempt is not committed and never will be."""
    return attempt_prefix(epoch, attempt) + "aborted.json"


def vote_problem(attempt: Attempt, join: Join, vote: Vote) -> str | None:
    """What makes a vote contradict the attempt, or the writer that joined; None where nothing does."""
    checks = (
        ("is for another attempt", vote.attempt, attempt.sha256),
        ("is in the name of another rank", vote.rank, join.rank),
        ("is of a process that did not join", vote.nonce, join.nonce),
        ("is of another epoch", vote.epoch_nonce, attempt.epoch_nonce),
        ("builds on another version", vote.parent, attempt.parent),
        ("is for other elements than it joined with", vote.claim, join.claim),
    )
    for problem, said, due in checks:
        if said != due:
            return f"{problem}: {said} where {due} was due"
    if vote.step is not None and vote.step != attempt.step:
        return f"is of step {vote.step}, and the attempt of step {attempt.step}"
    return None
