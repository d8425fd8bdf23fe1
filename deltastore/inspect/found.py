"""What a look at an object has found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from deltastore.errors import DeltastoreError

__all__ = ["Inspection", "Wanted", "said_of"]

_READERS_ADVICE: Final = "; take another version"


def said_of(error: DeltastoreError) -> str:
    """The message, without what a reader of the stream should do, and with the object's name once."""
    said = str(error).removesuffix(_READERS_ADVICE)
    if not error.where:
        return said
    front, name, rest = said.partition(error.where)
    return front + name + rest.replace(error.where, "it")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to look at. ``rows``, ``array`` (a number or a pattern) and ``chunk`` choose index rows of a pack,
    ``chunk`` also entries of a shard; the first ``limit`` of them are listed.

    ``check``: everything is read and checked. ``entropy``: patches are compared with their bounds.
    ``octets``: with the bytes of the patches of ``rows``.
    """

    rows: tuple[int, ...] = ()
    array: str | None = None
    chunk: int | None = None
    limit: int = 20
    check: bool = False
    entropy: bool = False
    octets: bool = False


@dataclass(slots=True)
class Inspection:
    """An object of ``kind``. ``facts`` are plain values, ready for JSON, in the order of reading.

    ``problems`` say what is wrong with the object, ``notes`` what is worth knowing or could not be known,
    ``not_checked`` what should have been checked, and could not be.
    """

    shown: str
    key: str | None
    size: int
    kind: str = "unknown"
    facts: dict[str, Any] = field(default_factory=dict)
    problems: list[DeltastoreError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)

    @property
    def where(self) -> str:
        """What errors call the object."""
        return self.key or self.shown

    def left_out(self, what: str) -> None:
        """Note something that could not be checked, once."""
        if what not in self.not_checked:
            self.not_checked.append(what)

    def wrong(self, error: DeltastoreError) -> None:
        """Note a problem, once: also where one that is known has it as its cause."""
        for known in self.problems:
            same = (known.rule, known.offset) == (error.rule, error.offset)
            if str(error) == str(known) or (same and str(error) in str(known)):
                return
        self.problems.append(error)

    def as_json(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "object": self.shown,
            "key": self.key,
            "kind": self.kind,
            "bytes": self.size,
            **self.facts,
            "notes": self.notes,
            "not_checked": self.not_checked,
            "problems": [
                {
                    "code": one.code,
                    "check": one.rule,
                    "message": said_of(one),
                    "where": one.where,
                    "offset": one.offset,
                    "tensor": one.tensor,
                }
                for one in self.problems
            ],
        }
