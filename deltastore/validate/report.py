"""What a validation found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from deltastore.errors import CorruptError, DeltastoreError, InputError, StoreError, UnsupportedError
from deltastore.layout.watched import Progress
from deltastore.validate.checks import CHECKS, Check, Level

__all__ = ["BAD_OBJECT", "LIMIT", "Findings", "Problem", "Progress", "Report"]

BAD_OBJECT: Final = (CorruptError, InputError, UnsupportedError, StoreError)
"""What reading an object raises that cannot be judged sound; InputError where it is a link or hides under a
key that is none."""

LIMIT: Final = 100
"""How many problems are listed, by default; all are counted."""

_FAILURES: Final = 100
"""Objects that a store may fail to give before it is the store that is at fault."""

_BAD_OBJECTS: Final = 1 << 15
"""How many are remembered, so that no object is reported twice of one version: 3 MiB."""

_READERS_ADVICE: Final = "; take another version"

_MOST_TEXT: Final = 2000
"""Characters of a message or a name that are kept: whoever wrote the store may have chosen them."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. ``check`` is the requirement that is broken, ``code`` as in SPEC "Errors".

    ``where`` is the object, ``offset`` the byte in it, ``version`` the version that names it, ``tensor`` the
    tensor or the pattern of the tensors concerned; each None where it is not known or makes no sense. A store
    that failed breaks no requirement. ``exit_status`` says what it is: 12 damage, 13 of a format that this
    release does not know, 1 could not be read.
    """

    check: str | None
    code: str
    where: str | None
    message: str
    version: int | None = None
    offset: int | None = None
    tensor: str | None = None
    exit_status: int = CorruptError.exit_status

    @property
    def broken(self) -> Check | None:
        """The requirement."""
        return None if self.check is None else CHECKS[self.check]


@dataclass(frozen=True, slots=True)
class Report:
    """What was checked, and every problem found, the first bad object first.

    ``version`` is the one that was asked for, with no more than what reading it takes; None: all.
    ``judged`` counts by requirement how many objects were found to keep it, ``broken`` how many were not.
    ``problems`` are the first of ``found``, as many as were asked for; of these ``unsupported`` are of a
    format that this release does not know and ``unread`` objects that the store failed to give; all others
    are damage. ``worst`` is the first of the worst kind. ``stopped`` is the slot of the record at which the
    log cannot be read further, and at which readers stop too; None where its end was reached.

    Of ``resumed`` versions an earlier validation found the content to be sound: of these no more was looked
    at than at level structure. ``sound`` is the newest version for which everything that reading it takes was
    found right, as far as ``level`` goes. ``nbytes`` are those of all packs, of the objects of all anchors,
    and of carried files. ``figures`` are counts that no requirement is about, such as the elements that
    really changed.
    """

    level: Level
    version: int | None
    records: int
    versions: int
    anchors: int
    packs: int
    nbytes: int
    resumed: int
    sound: int | None
    stopped: int | None
    found: int
    unsupported: int
    unread: int
    worst: Problem | None
    judged: dict[str, int]
    broken: dict[str, int]
    problems: tuple[Problem, ...]
    figures: dict[str, int] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong, and everything was judged."""
        return not self.found

    @property
    def corrupt(self) -> int:
        """How many problems are damage."""
        return self.found - self.unsupported - self.unread

    @property
    def exit_status(self) -> int:
        """0; 12 if anything is damaged, else 13 if anything is unsupported, else 1."""
        return 0 if self.worst is None else self.worst.exit_status


@dataclass(slots=True)
class Findings:
    """Problems as they are found, with progress in bytes. ``limit`` of them are kept; 0: all."""

    progress: Progress | None = None
    limit: int = LIMIT
    total: int = 0
    done: int = 0
    found: int = 0
    problems: list[Problem] = field(default_factory=list)
    firsts: dict[int, Problem] = field(default_factory=dict)
    """The first problem of each kind, by exit status."""
    kinds: Counter[int] = field(default_factory=Counter)
    """How many there are of each kind."""
    judged: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    bad_versions: set[int] = field(default_factory=set)
    bad_objects: set[int] = field(default_factory=set)
    """Hashes of (version, key) of objects that are not what the version says; another may say otherwise."""
    wrong_digests: set[int] = field(default_factory=set)
    """Versions whose own digest is wrong."""
    failures: dict[str, StoreError] = field(default_factory=dict)
    """Objects that the store failed to give."""
    figures: Counter[str] = field(default_factory=Counter)

    def apart(self) -> Findings:
        """Findings of a part, to be merged."""
        return Findings(limit=self.limit)

    def passed(self, checks: Iterable[str], objects: int = 1) -> None:
        """So many objects keep these requirements."""
        for check in checks:
            self.judged[check] += objects

    def add(self, error: DeltastoreError, version: int | None = None, *, named: bool = True) -> None:
        """Note a problem; raise what is none of an object, and a store that fails too often.

        ``named``: whether anything names the object, so that it may be looked at again.
        """
        if error.rule is None and not isinstance(error, UnsupportedError | StoreError):
            raise error
        if isinstance(error, StoreError):
            self.failures[error.where or str(error)] = error
            self._check_store()
        self.found += 1
        self.kinds[kind := _kind(error)] += 1
        if error.rule is not None:
            self.broken[error.rule] += 1
        if version is not None:
            self.bad_versions.add(version)
            if error.code == "bad_digest":
                self.wrong_digests.add(version)
        if error.where is not None and named and len(self.bad_objects) < _BAD_OBJECTS:
            self.bad_objects.add(hash((version, error.where)))
        if self._has_room or kind not in self.firsts:
            where, message, tensor = _cut(error.where), _cut(_said(error)) or "", _cut(error.tensor)
            problem = Problem(error.rule, error.code, where, message, version, error.offset, tensor, kind)
            self.firsts.setdefault(kind, problem)
            if self._has_room:
                self.problems.append(problem)

    @property
    def _has_room(self) -> bool:
        return not self.limit or len(self.problems) < self.limit

    def knows(self, version: int | None, key: str | None) -> bool:
        """Whether an object is known not to be what a version says of it."""
        return hash((version, key)) in self.bad_objects

    @property
    def worst(self) -> Problem | None:
        """The first problem of the worst kind: damage, then what is unsupported, then what was not read."""
        order = (CorruptError.exit_status, UnsupportedError.exit_status, StoreError.exit_status)
        return next((self.firsts[kind] for kind in order if kind in self.firsts), None)

    def merge(self, others: Findings) -> None:
        """Take over what was found apart, after all that was found before."""
        self.found += others.found
        self.problems += others.problems
        if self.limit:
            del self.problems[self.limit :]
        self.firsts = {**others.firsts, **self.firsts}
        self.kinds += others.kinds
        self.judged += others.judged
        self.broken += others.broken
        self.figures += others.figures
        self.bad_versions |= others.bad_versions
        self.wrong_digests |= others.wrong_digests
        room = max(_BAD_OBJECTS - len(self.bad_objects), 0)
        self.bad_objects.update(islice(others.bad_objects, room))
        self.failures |= others.failures
        self._check_store()

    def _check_store(self) -> None:
        if len(self.failures) >= _FAILURES:
            raise next(reversed(self.failures.values()))

    def advance(self, nbytes: int) -> None:
        """So many more bytes are checked."""
        self.done += nbytes
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total)


def _kind(error: DeltastoreError) -> int:
    """What a problem is: InputError is for a key or a link that no stream may have, so damage."""
    return CorruptError.exit_status if isinstance(error, InputError) else error.exit_status


def _said(error: DeltastoreError) -> str:
    """The message, without advice to readers that is of no use to who looks for damage."""
    return str(error).removesuffix(_READERS_ADVICE)


def _cut(text: str | None) -> str | None:
    return text if text is None or len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…"
