"""Which ranks share what: tensor parallelism varies fastest, then expert or data parallelism."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Place", "Topology"]


@dataclass(frozen=True)
class Place:
    """One rank: its coordinates for dense parameters, and for those of experts."""

    tp: int
    dp: int
    etp: int
    ep: int
    edp: int


@dataclass(frozen=True)
class Topology:
    """``world`` ranks, ``tp`` of them to a tensor; ``ep`` to the experts, and ``etp`` to each expert."""

    world: int
    tp: int = 1
    ep: int = 1
    etp: int = 1

    @property
    def dp(self) -> int:
        """Data-parallel ranks of a dense parameter."""
        return self.world // self.tp

    @property
    def edp(self) -> int:
        """Data-parallel ranks of an expert's parameter."""
        return self.world // (self.etp * self.ep)

    def place(self, rank: int) -> Place:
        """The coordinates of a rank."""
        inner = self.etp * self.ep
        return Place(
            rank % self.tp, rank // self.tp, rank % self.etp, rank % inner // self.etp, rank // inner
        )

    def data_ranks(self, *, expert: bool) -> list[list[int]]:
        """The data-parallel groups, of dense parameters or of experts."""
        inner = self.etp * self.ep if expert else self.tp
        return [list(range(first, self.world, inner)) for first in range(inner)]
