"""What a committed version was, for whoever published it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from deltastore.format.records import Certificate
from deltastore.log import Manifest

__all__ = ["Published"]


@dataclass(frozen=True, slots=True)
class Published:
    """A version that is committed: durable, and visible to every reader.

    ``changed`` of ``elements`` elements changed; ``nbytes`` were uploaded in packs (an anchor: in all its
    objects); ``manifest_bytes`` is the size of the record; ``seconds`` the time from call to commit.
    ``certificate``: what detection without a copy found, else None. With several writers the numbers are
    those of all of them.
    """

    version: int
    kind: Literal["delta", "anchor"]
    slot: int
    changed: int
    elements: int
    nbytes: int
    manifest_bytes: int
    seconds: float
    certificate: Certificate | None = None

    @classmethod
    def of(cls, record: Manifest, seconds: float) -> Published:
        """What a manifest says, and how long it took."""
        return cls(
            version=record.version,
            kind=record.kind,
            slot=record.slot,
            changed=record.statistics.changed,
            elements=record.statistics.elements,
            nbytes=record.statistics.bytes,
            manifest_bytes=len(record.to_bytes()),
            seconds=seconds,
            certificate=record.statistics.certificate,
        )
