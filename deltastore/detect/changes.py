"""What every detector yields, and when it may move on."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from deltastore.detect.findings import Findings
from deltastore.kernels.rows import EncodedPatches
from deltastore.layout.weights import Weights

__all__ = ["Detector", "LiveDetector"]


class Detector(Protocol):
    """Finds the changes since the version that was last committed through it, as patches in pack order.

    After a round of ``changes`` comes exactly one of ``committed`` (the record was read back or its
    creation acknowledged) and ``aborted``; after ``aborted`` the same changes are found again.
    """

    @property
    def name(self) -> str:
        """What a manifest's statistics call it."""
        ...

    def changes(self) -> AsyncGenerator[EncodedPatches]:
        """One round of detection: batches of patches, a few mebibytes of weights each."""
        ...

    def committed(self) -> None:
        """What the last round found is now published."""
        ...

    def aborted(self) -> None:
        """What the last round found was not published."""
        ...


class LiveDetector(Detector, Protocol):
    """A detector of what a trainer holds: it stays with one writer, from version to version."""

    holds_copy: bool
    """Whether the live tensors may move on as soon as ``retake`` has returned."""

    @property
    def findings(self) -> Findings | None:
        """What the certificate of the last round found; None for a detector that compares with a copy."""
        ...

    @property
    def whole(self) -> Weights:
        """What ``retake`` found, to be stored whole; only where this process holds all of the model."""
        ...

    def everything(self) -> AsyncGenerator[EncodedPatches]:
        """What ``retake`` found, as patches on zero bits."""
        ...

    async def retake(self) -> None:
        """Open a round of which the live weights as they are now are the outcome: they are stored whole."""
        ...

    async def digest(self) -> int:
        """The digest of what the open round found, or else of what stands published, mod 2**64."""
        ...

    async def unchanged(self) -> bool:
        """Whether the live weights are those that stand published."""
        ...

    def close(self) -> None:
        """Give up what leads outside, such as an optimizer's hooks."""
        ...
