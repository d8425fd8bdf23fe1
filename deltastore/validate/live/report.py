"""What comparing live weights with a version found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

__all__ = ["CHECK", "Apart", "LiveReport"]

CHECK: Final = "DS092"
"""The requirement that live weights of another version break: what is reported is what memory holds."""

MAX_APART: Final = 100
"""How many are kept; all are counted."""


@dataclass(frozen=True, slots=True)
class Apart:
    """Elements of ``tensor`` that are not the version's.

    ``source``: whose; ``parameter``: where they stand in it, or None where it goes by tensors. ``elements``
    differ, the first at ``index`` of the tensor, which holds the bits ``live`` (hexadecimal) where the
    version has ``stored``. An attestation has digests only: it says in which ``chunk``, and of how many
    elements, and ``index`` is where the chunk starts.
    """

    source: str
    tensor: str
    parameter: str | None
    elements: int
    index: tuple[int, ...]
    live: str | None = None
    stored: str | None = None
    chunk: int | None = None

    def __str__(self) -> str:
        at = f"[{', '.join(map(str, self.index))}]"
        held = "" if self.parameter is None else f" in parameter {self.parameter}"
        if self.chunk is not None:
            return (
                f"{self.source}: chunk {self.chunk}, from {self.tensor}{at} on, of {self.elements} elements"
            )
        values = "" if self.live is None else f"; {self.tensor}{at} is {self.live}, not {self.stored}"
        elements = "1 element" if self.elements == 1 else f"{self.elements} elements"
        return f"{self.source}: {elements} of {self.tensor}{held}{values}"


@dataclass(slots=True)
class LiveReport:
    """Whether live weights are ``version``, bit by bit.

    ``attested``: digests were compared, of ``chunks``; else bits. ``claims``: of each source (version, label,
    time, nonce), as it says. ``covered`` of the ``total`` elements of the table were compared. ``elements``
    were compared, those that stand in several places as often; ``holes`` elements of parameters that no
    tensor feeds were not.
    ``apart``: what differs, the first ``MAX_APART`` of ``found``; ``differing`` chunks differ. ``astray``:
    (source, parameter) with copies or lower halves that are not what its digests are of. ``instead``: the
    version that all of it is, where that was found. ``shares``: version -> chunks that are as in it and, of
    those versions that led to ``version``, no newer one; None for chunks of none of them.
    """

    url: str
    version: int
    sources: tuple[str, ...]
    attested: bool
    claimed: tuple[int, ...]
    claims: tuple[tuple[int, str, int, str], ...] = ()
    total: int = 0
    covered: int = 0
    elements: int = 0
    holes: int = 0
    chunks: int = 0
    differing: int = 0
    found: int = 0
    instead: int | None = None
    apart: list[Apart] = field(default_factory=list)
    astray: list[tuple[str, str]] = field(default_factory=list)
    shares: dict[int | None, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing differs, and all readers claim one version."""
        return self.agreed and not self.differing and not self.astray and not self.found

    @property
    def agreed(self) -> bool:
        """Whether all readers claim one version."""
        return len(self.claimed) <= 1

    def add(self, apart: Apart) -> None:
        """Note what differs."""
        self.found += 1
        if len(self.apart) < MAX_APART:
            self.apart.append(apart)
