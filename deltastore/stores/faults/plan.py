"""Which faults a store shows, how often, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, Self, TypeAlias, get_args

from deltastore.errors import InputError

__all__ = ["Fault", "Faults", "Kind", "Operation"]

Operation: TypeAlias = Literal[
    "get", "get_range", "get_changed", "stat", "list", "put", "put_if_absent", "delete"
]
Kind: TypeAlias = Literal[
    "refused", "lost", "delayed", "stalled", "late", "repeated", "truncated", "stale_absent", "stale_list"
]

_ALL: Final[frozenset[Operation]] = frozenset(get_args(Operation))
_WRITES: Final[frozenset[Operation]] = frozenset({"put", "put_if_absent", "delete"})
_BODIES: Final[frozenset[Operation]] = frozenset({"get", "get_range", "get_changed"})
_STRIKES: Final[dict[Kind, frozenset[Operation]]] = {
    "refused": _ALL,
    "lost": _ALL,
    "delayed": _ALL,
    "stalled": _ALL,
    "late": _WRITES,
    "repeated": _WRITES,
    "truncated": _BODIES,
    "stale_absent": _BODIES | {"stat"},
    "stale_list": frozenset({"list"}),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault, how likely it is, and which calls it may strike.

    ``operations`` (empty: all that the kind can strike) and ``prefix``, with which the key or the listed
    prefix starts, say which calls match. Of those each is struck with ``probability``; or, where ``at`` is
    given, exactly those with these numbers, counted from 1 among the calls that match.

    refused
        ``StoreError`` before anything is applied.
    lost
        Applied, and then ``StoreError``: the reply got lost. A listing ends with it after some keys.
    delayed
        Answered after up to ``Faults.delay_seconds``. Comes on top of any other fault.
    stalled
        Nothing is applied; ``StoreError`` after ``Faults.stall_seconds``.
    late
        ``StoreError`` at once, and the write lands after ``Faults.land_after`` further calls.
    repeated
        Applied and answered, and the same write lands once more after ``Faults.land_after`` further calls.
    truncated
        The bytes of the object or range are too few, and nothing says so.
    stale_absent
        An object created within the last ``Faults.recent_calls`` calls is not there.
    stale_list
        Objects created within the last ``Faults.recent_calls`` calls are not listed.

    Raises ``InputError("bad_argument")`` for a plan that makes no sense.
    """

    kind: Kind
    probability: float = 1.0
    operations: tuple[Operation, ...] = ()
    prefix: str = ""
    at: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in _STRIKES:
            raise _bad(f"{self.kind!r} is no kind of fault; it is one of {', '.join(_STRIKES)}")
        if not 0 <= self.probability <= 1:
            raise _bad(f"the probability of {self.kind} is {self.probability}; give 0 to 1")
        if any(number < 1 for number in self.at):
            raise _bad(f"{self.kind} is planned at call {min(self.at)}; calls are counted from 1")
        never = set(self.operations) - _STRIKES[self.kind]
        if never:
            possible = ", ".join(sorted(_STRIKES[self.kind]))
            raise _bad(f"{self.kind} cannot strike {', '.join(sorted(never))}, only {possible}")

    def matches(self, operation: Operation, key: str) -> bool:
        """Whether this fault may strike a call."""
        among = self.operations or _STRIKES[self.kind]
        return operation in among and key.startswith(self.prefix)


@dataclass(frozen=True, slots=True)
class Faults:
    """A plan of faults. A call is struck by the first of ``faults`` whose turn it is.

    ``delay_seconds`` bounds a delay; ``stall_seconds`` is how long a stalled call hangs (None: until it is
    cancelled). ``land_after`` is how many further calls a late or repeated write waits, and ``recent_calls``
    for how many calls a new object may be missed. Raises ``InputError("bad_argument")`` for a negative one.
    """

    faults: tuple[Fault, ...] = ()
    delay_seconds: float = 0.01
    stall_seconds: float | None = 1.0
    land_after: int = 3
    recent_calls: int = 8

    def __post_init__(self) -> None:
        numbers = (self.delay_seconds, self.stall_seconds or 0, self.land_after, self.recent_calls)
        if min(numbers) < 0:
            raise _bad("a plan of faults has a negative time or number of calls; give 0 or more")

    @classmethod
    def rates(cls, *, prefix: str = "", **probabilities: float) -> Self:
        """A plan by probability: ``Faults.rates(refused=0.02, lost=0.01)``, on keys that start so."""
        kinds = get_args(Kind)
        unknown = sorted(set(probabilities) - set(kinds))
        if unknown:
            raise _bad(f"{unknown[0]!r} is no kind of fault; it is one of {', '.join(kinds)}")
        found = (Fault(kind, probabilities[kind], prefix=prefix) for kind in kinds if kind in probabilities)
        return cls(tuple(found))


def _bad(message: str) -> InputError:
    return InputError("bad_argument", message)
