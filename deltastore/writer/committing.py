"""How a version that one writer has found comes to be committed: alone, as coordinator, or as a member."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from deltastore.detect.changes import LiveDetector
from deltastore.format.records import MetadataValue
from deltastore.log import Manifest
from deltastore.writer.packing import Packing, Progress, Uploaded

__all__ = ["Committing", "Metadata", "Opened", "Wanted"]

Metadata = Mapping[str, MetadataValue]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a caller of ``publish`` asks for. ``metadata`` is checked, and has the step in it."""

    version: int | None
    step: int | None
    metadata: dict[str, MetadataValue]
    whole: bool


@dataclass(frozen=True, slots=True)
class Opened:
    """An attempt at a version. ``base`` is what patches apply to; None: the version is stored whole."""

    version: int
    nonce: str
    base: Manifest | None


class Committing(Protocol):
    """One writer's right to take part in versions of one epoch.

    ``open``, then ``commit`` or ``commit_whole``, or ``give_up`` after whatever was raised; then, if
    ``in_doubt``, ``settle``.
    """

    @property
    def number(self) -> int:
        """The epoch's number."""
        ...

    @property
    def in_doubt(self) -> bool:
        """Whether the last attempt may have been committed, or may be yet, without a report."""
        ...

    async def settle(self) -> Manifest | None:
        """The manifest of the attempt in doubt if it is committed; None if it never will be."""
        ...

    async def open(self, wanted: Wanted, base: Manifest | None) -> Opened:
        """Begin an attempt at a version on ``base``; nothing that it needs is uploaded before."""
        ...

    async def commit(self, opened: Opened, wanted: Wanted, uploaded: Uploaded, detector: str) -> Manifest:
        """Commit what is uploaded, as a delta; the manifest is durable on return."""
        ...

    async def commit_whole(
        self,
        opened: Opened,
        wanted: Wanted,
        detector: LiveDetector,
        packing: Packing,
        progress: Progress | None,
    ) -> Manifest:
        """Upload and commit what ``detector`` found, as an anchor; the manifest is durable on return."""
        ...

    async def give_up(self, opened: Opened, error: BaseException) -> None:
        """Let others who take part know that it came to nothing. Raises nothing on account of the store."""
        ...
