"""Writes that land after their caller has gone on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from deltastore.errors import DeltastoreError
from deltastore.stores.faults.journal import Injected
from deltastore.stores.faults.plan import Operation

__all__ = ["LateWrite", "LateWrites"]


@dataclass(frozen=True, slots=True)
class LateWrite:
    """A write on its way, which lands before call number ``due`` of the store."""

    due: int
    operation: Operation
    key: str
    apply: Callable[[], Awaitable[object]]


class LateWrites:
    """The writes on their way."""

    def __init__(self, journal: list[Injected]) -> None:
        self._waiting: list[LateWrite] = []
        self._journal = journal

    def add(self, write: LateWrite) -> None:
        self._waiting.append(write)

    async def land(self, number: int, *, everything: bool = False) -> None:
        """Apply what is due before call ``number``, or everything. Nobody hears of a failure."""
        due = [write for write in self._waiting if everything or write.due <= number]
        self._waiting = [write for write in self._waiting if write not in due]
        for write in due:
            self._journal.append(Injected(number, write.operation, write.key, "landed"))
            try:
                await write.apply()
            except DeltastoreError:
                continue
