"""The part of a block that one process of a group has."""

from __future__ import annotations

from dataclasses import dataclass

from deltastore.errors import InputError

__all__ = ["Share"]


@dataclass(frozen=True, slots=True)
class Share:
    """Part ``rank`` of ``size`` equal parts; ``copy`` counts the groups that are cut alike."""

    rank: int
    size: int
    copy: int = 0

    @property
    def whole(self) -> int:
        """Number, among all copies, of what every process of every such group has whole."""
        return self.copy * self.size + self.rank

    def cut(self, length: int, of: str, param: str) -> tuple[int, int]:
        """First and number of the parts of ``length`` that are here.

        ``of``: what they are, for people. Raises ``InputError("bad_layout")`` if they do not divide.
        """
        if length % self.size:
            raise InputError(
                "bad_layout",
                f"parameter {param!r}: {length} {of} cannot be cut into {self.size} equal parts; choose a "
                f"degree that divides {length}",
                where=param,
            )
        count = length // self.size
        return self.rank * count, count
