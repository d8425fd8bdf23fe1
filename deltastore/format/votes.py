"""What the writers of one stream tell each other through the store (SPEC section "Several writers").

None of these objects is part of the stream: a reader never looks at them, and only a record commits.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from deltastore.format.limits import (
    MAX_RANK,
    OWNED_BOXES,
    PACKS_PER_VERSION,
    REASON_TEXT,
    RUN_TEXT,
    WRITERS,
)
from deltastore.format.records import Label, OptionalCertificate, PackRef
from deltastore.format.sealed import Count, Hex16, Hex32, Sealed, Sha256, Strict

__all__ = [
    "Attempt",
    "Call",
    "Claim",
    "Ending",
    "Join",
    "Owned",
    "Vote",
    "attempt_prefix",
    "call_prefix",
    "claim_key",
    "writer_name",
]

Run = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*$", max_length=RUN_TEXT)]
Writers = Annotated[int, Field(ge=1, le=WRITERS)]
Rank = Annotated[int, Field(ge=0, lt=WRITERS)]
Reason = Annotated[str, Field(max_length=REASON_TEXT)]
Axes = Annotated[tuple[Count, ...], Field(min_length=1, max_length=MAX_RANK + 1, fail_fast=True)]


def call_prefix(run: str, call: int) -> str:
    """Where the objects of one gathering of writers stand; ends in a slash."""
    return f"joining/{run}/{call:020d}/"


def attempt_prefix(epoch: int, attempt: int) -> str:
    """Where the objects of one attempt at a version stand; ends in a slash."""
    return f"prepared/{epoch:020d}/{attempt:020d}/"


def claim_key(sha256: str) -> str:
    """Where a claim stands."""
    return f"claims/{sha256}.json"


def writer_name(rank: int) -> str:
    """The last part of the key of what a writer puts under a prefix."""
    return f"{rank:05d}.json"


class Call(Sealed):
    """The coordinator gathers the writers of an epoch to come; ``nonce`` will be its record's."""

    kind: Literal["call"] = "call"
    run: Run
    call: Count
    nonce: Hex32
    writers: Writers
    table: Sha256


class Join(Sealed):
    """A writer answers a call: what it holds, and the digest of that. ``nonce`` tells it from any other."""

    kind: Literal["join"] = "join"
    call: Sha256
    rank: Rank
    nonce: Hex32
    label: Label
    claim: Sha256
    digest: Hex16


class Owned(Strict):
    """A box of an array over (member, tensor axes)."""

    array: Count
    start: Axes
    size: Axes

    @model_validator(mode="after")
    def _over_the_same_axes(self) -> Self:
        if len(self.start) != len(self.size):
            raise ValueError("start and size of a box are of different lengths")
        return self


class Claim(Sealed):
    """The elements that a writer holds, and that no other may publish."""

    kind: Literal["claim"] = "claim"
    table: Sha256
    boxes: Annotated[tuple[Owned, ...], Field(max_length=OWNED_BOXES, fail_fast=True)]


class Attempt(Sealed):
    """The coordinator opens an attempt at a version. ``nonce`` will be that of its manifest.

    ``base`` and ``parent`` are the version that patches apply to and the hash of its manifest; both are null
    when the version is stored whole.
    """

    kind: Literal["attempt"] = "attempt"
    epoch: Count
    epoch_nonce: Hex32
    attempt: Count
    nonce: Hex32
    version: Count
    base: Count | None
    parent: Sha256 | None
    table: Sha256
    step: Annotated[int, Field(ge=-(2**53) + 1, le=2**53 - 1)] | None

    @model_validator(mode="after")
    def _whole_or_not(self) -> Self:
        if (self.base is None) != (self.parent is None):
            raise ValueError("base and parent are both null or neither is")
        if self.base is not None and self.base >= self.version:
            raise ValueError("the base is not below the version")
        return self


class Vote(Sealed):
    """A writer has uploaded all that it owes to an attempt.

    It says by itself what it believes: the epoch, the base's manifest, the step. ``difference`` is the sum
    of the digest differences of its packs' rows; ``certificate`` as in a manifest's statistics.
    """

    kind: Literal["vote"] = "vote"
    attempt: Sha256
    rank: Rank
    nonce: Hex32
    epoch_nonce: Hex32
    parent: Sha256 | None
    step: Annotated[int, Field(ge=-(2**53) + 1, le=2**53 - 1)] | None
    claim: Sha256
    packs: Annotated[tuple[PackRef, ...], Field(max_length=PACKS_PER_VERSION, fail_fast=True)]
    changed: Count
    difference: Hex16
    detector: Label
    certificate: OptionalCertificate = None


class Ending(Sealed):
    """Why a gathering or an attempt came to nothing, or why a writer wants it to. ``rank`` says so."""

    kind: Literal["ending"] = "ending"
    rank: Rank
    reason: Reason
