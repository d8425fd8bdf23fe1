"""What was injected, for a test that wants to say how it got there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from deltastore.stores.faults.plan import Kind, Operation

__all__ = ["Injected"]


@dataclass(frozen=True, slots=True)
class Injected:
    """A fault that struck, or the landing of a write that a fault had put off.

    ``number`` is that of the call among all calls of the store, from 1; a landing has the number of the
    call it came before.
    """

    number: int
    operation: Operation
    key: str
    kind: Kind | Literal["landed"]

    def __str__(self) -> str:
        return f"call {self.number}: {self.operation} {self.key or 'everything'}: {self.kind}"
