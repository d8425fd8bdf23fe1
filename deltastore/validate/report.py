"""What a validation found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from deltastore.errors import CorruptError, DeltastoreError, InputError, UnsupportedError
from deltastore.layout.watched import Progress

__all__ = ["BAD_OBJECT", "Findings", "Problem", "Progress", "Report"]

BAD_OBJECT: Final = (CorruptError, InputError)
"""What reading a bad object raises; InputError where it is a link or hides under a key that is none."""

MAX_PROBLEMS = 100


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: ``code`` as in SPEC section "Errors", ``where`` the object concerned."""

    code: str
    where: str | None
    message: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What was checked, and every problem found, the first bad object first."""

    records: int
    versions: int
    anchors: int
    packs: int
    nbytes: int
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


@dataclass(slots=True)
class Findings:
    """Problems as they are found, with progress in bytes."""

    progress: Progress | None = None
    total: int = 0
    done: int = 0
    problems: list[Problem] = field(default_factory=list)

    def add(self, error: DeltastoreError, version: int | None = None) -> None:
        """Note a problem; a format that this release does not know is no problem of the stream: raised."""
        if isinstance(error, UnsupportedError):
            raise error
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(error.code, error.where, str(error), version))

    def advance(self, nbytes: int) -> None:
        """So many more bytes are checked."""
        self.done += nbytes
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total)
