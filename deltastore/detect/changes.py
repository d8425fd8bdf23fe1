"""What every detector yields, and when it may move on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from deltastore.kernels.rows import EncodedPatches

__all__ = ["Detector"]


class Detector(Protocol):
    """Finds the changes since the version that was last committed through it, as patches in pack order.

    After a round of ``changes`` comes exactly one of ``committed`` (the record was read back or its
    creation acknowledged) and ``aborted``; after ``aborted`` the same changes are found again.
    """

    @property
    def name(self) -> str:
        """What a manifest's statistics call it."""
        ...

    def changes(self) -> AsyncIterator[EncodedPatches]:
        """One round of detection: batches of patches, a few mebibytes of weights each."""
        ...

    def committed(self) -> None:
        """What the last round found is now published."""
        ...

    def aborted(self) -> None:
        """What the last round found was not published."""
        ...
