"""What a certificate found while a version was looked for, in numbers and in words."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

__all__ = ["WARN_SHARE", "Findings"]

WARN_SHARE: Final = 0.01
"""Above this share of uncertain elements, or of unexplained blocks, something is wrong with the inversion."""

_FEW: Final = 3
"""So many blocks go unexplained now and then: weights that are far smaller than their update make them."""


@dataclass(slots=True)
class Findings:
    """``uncertain`` of ``inverted`` elements had more than one possible old value; of ``blocks`` looked at,
    ``settled`` were explained by other candidates than the likeliest, and ``unexplained`` sent whole.

    ``reasons``: why elements were not inverted -> how many parts of tensors that concerns. ``parts``: numbers
    of those with unexplained blocks.
    """

    inverted: int = 0
    uncertain: int = 0
    blocks: int = 0
    settled: int = 0
    unexplained: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    parts: set[int] = field(default_factory=set)

    def add(self, other: Findings) -> None:
        """Take those of another pass in."""
        self.inverted += other.inverted
        self.uncertain += other.uncertain
        self.blocks += other.blocks
        self.settled += other.settled
        self.unexplained += other.unexplained
        self.reasons += other.reasons
        self.parts |= other.parts

    @property
    def suspicious(self) -> bool:
        """Whether steps could not be inverted, or so much is uncertain or unexplained that one was wrong."""
        if self.reasons:
            return True
        unexplained = self.unexplained if self.unexplained > _FEW else 0
        return self.uncertain > WARN_SHARE * self.inverted or unexplained > WARN_SHARE * self.blocks

    def __str__(self) -> str:
        text = (
            f"{self.uncertain} of {self.inverted} inverted elements were uncertain; of {self.blocks} blocks "
            f"{self.settled} were settled, and {self.unexplained} that nothing explains were sent whole"
        )
        said = "; ".join(f"{reason} ({count})" for reason, count in sorted(self.reasons.items()))
        return f"{text}: {said}" if said else text
