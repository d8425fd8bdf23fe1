"""Where a process stands in Megatron-core's parallel groups, and which copies it has."""

from __future__ import annotations

from dataclasses import dataclass, fields

from deltastore.layout.integers import check_integer
from deltastore.layout.share import Share

__all__ = ["Place"]


@dataclass(frozen=True, slots=True)
class Place:
    """Sizes of the groups and the ranks in them.

    ``replica`` and ``expert_replica``: number among the copies that data and context parallelism make of what
    is not an expert's, and of experts.
    """

    tp: int
    pp: int
    vpp: int
    ep: int
    etp: int
    tp_rank: int
    pp_rank: int
    vpp_rank: int
    ep_rank: int
    etp_rank: int
    replica: int
    expert_replica: int

    def __post_init__(self) -> None:
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            if name.endswith("_rank"):
                check_integer(name, value, below=getattr(self, name.removesuffix("_rank")))
            else:
                check_integer(name, value, least=0 if name.endswith("replica") else 1)

    @property
    def name(self) -> str:
        """For people."""
        words = [
            f"{axis} {getattr(self, f'{axis}_rank')}/{getattr(self, axis)}"
            for axis in ("tp", "pp", "vpp", "ep", "etp")
            if getattr(self, axis) > 1
        ]
        copies = [f"replica {self.replica}"] if self.replica else []
        return " ".join(["megatron", *words, *copies])

    @property
    def share(self) -> Share:
        """Its part of what tensor parallelism cuts."""
        return Share(self.tp_rank, self.tp, self.replica)

    @property
    def expert_share(self) -> Share:
        """Its part of each expert that it has."""
        return Share(self.etp_rank, self.etp, self.expert_replica)

    @property
    def chunk(self) -> int:
        """Number of the model chunk in the order of layers."""
        return self.vpp_rank * self.pp + self.pp_rank

    @property
    def is_first(self) -> bool:
        """Whether the chunk has the embedding."""
        return self.chunk == 0

    @property
    def is_last(self) -> bool:
        """Whether the chunk has the last norm and the head."""
        return self.chunk == self.pp * self.vpp - 1
