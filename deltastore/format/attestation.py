"""What a reader says that its memory holds (SPEC section "Reading a version").

It is no object of a stream: a reader hands it to whoever compares it with the store.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from deltastore.format.limits import NAME_BYTES, OWNED_BOXES, TABLE_BYTES
from deltastore.format.records import Label
from deltastore.format.sealed import Count, Hex16, Hex32, Sealed, Sha256
from deltastore.format.votes import Owned

__all__ = ["ATTESTATION_BYTES", "Attestation"]

ATTESTATION_BYTES: Final = TABLE_BYTES
"""Longest attestation that is read."""

Name = Annotated[str, Field(max_length=NAME_BYTES)]


class Attestation(Sealed):
    """A reader at ``version``, whose manifest has hash ``record``, and the digests of what its memory holds.

    ``boxes``: the elements that it holds, each in one box; null: all of the table. ``digests``: of what it
    holds of each chunk, computed from memory at ``time``, ascending by array and chunk; chunks of which it
    holds nothing have none. ``astray``: parameters with copies of elements, or lower halves of widened ones,
    that are not what the digests are of. ``nonce``: whoever asked may have chosen it; ``label``: for people.
    """

    kind: Literal["attestation"] = "attestation"
    stream: Hex32
    table: Sha256
    version: Count
    record: Sha256
    boxes: Annotated[tuple[Owned, ...], Field(max_length=OWNED_BOXES)] | None
    digests: tuple[Hex16, ...]
    astray: tuple[Name, ...]
    nonce: Hex32
    time: Count
    label: Label
