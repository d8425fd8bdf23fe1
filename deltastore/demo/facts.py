"""What a run of the demo has shown, as values; the table and the JSON object are two views of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from deltastore.demo.bound import ALLOWED_RATIO, Bound

__all__ = ["Arrival", "Facts", "Losses", "VersionFacts"]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A version at one engine.

    ``visible_ms`` from the call of ``publish`` to the end of the apply, ``pause_ms`` of it with the weights
    not to be used; ``bytes`` were fetched; ``tokens`` were then generated.
    """

    visible_ms: float
    pause_ms: float
    bytes: int
    tokens: list[int]


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """A version: what it cost, in ``nbytes`` of all its objects, against the least that it could have."""

    version: int
    step: int
    loss: float
    nbytes: int
    bound: Bound
    publish_ms: float
    arrivals: tuple[Arrival, ...]

    @property
    def ratio(self) -> float | None:
        """Size without the fixed bytes ÷ bound; None where nothing changed."""
        return self.bound.ratio(self.nbytes)

    @property
    def density(self) -> float:
        """The share of elements that changed."""
        return self.bound.changed / self.bound.elements

    @property
    def bytes_per_changed(self) -> float | None:
        """Bytes for each changed element; None where nothing changed."""
        return self.nbytes / self.bound.changed if self.bound.changed else None

    def as_json(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "version": self.version,
            "step": self.step,
            "loss": self.loss,
            "elements": self.bound.elements,
            "changed": self.bound.changed,
            "bytes": self.nbytes,
            "bytes_per_changed": self.bytes_per_changed,
            "bound_bytes": self.bound.nbytes,
            "ratio": self.ratio,
            "judged": self.bound.judged,
            "publish_ms": self.publish_ms,
            "readers": [asdict(arrival) for arrival in self.arrivals],
        }


@dataclass(frozen=True, slots=True)
class Losses:
    """On held-out text, in nats per byte: before all training, when publishing began, and at the end."""

    untrained: float
    warmed_up: float
    final: float


@dataclass(frozen=True, slots=True)
class Facts:
    """A whole run.

    ``differences``: one line for each version at an engine, and each tensor at the end, whose bits are not
    the trainer's. ``readers``: engine name -> what it started from. ``url``: None if the stream is gone.
    """

    parameters: int
    text_bytes: int
    losses: Losses
    anchor_bytes: int
    versions: tuple[VersionFacts, ...]
    readers: dict[str, str]
    differences: tuple[str, ...]
    url: str | None
    seconds: float

    @property
    def worst_ratio(self) -> float | None:
        """The largest ratio among the judged versions; None if there is none."""
        return max((v.ratio for v in self.versions if v.bound.judged and v.ratio is not None), default=None)

    @property
    def small(self) -> bool:
        """Whether every judged version is small enough, and at least one was judged."""
        return self.worst_ratio is not None and self.worst_ratio <= ALLOWED_RATIO

    @property
    def bit_identical(self) -> bool:
        """Whether every engine had the trainer's bits at every version."""
        return not self.differences

    @property
    def passed(self) -> bool:
        """Whether the demo has shown what it is there to show."""
        return self.small and self.bit_identical

    def as_json(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "parameters": self.parameters,
            "text_bytes": self.text_bytes,
            "loss": asdict(self.losses),
            "anchor_bytes": self.anchor_bytes,
            "versions": [version.as_json() for version in self.versions],
            "readers": self.readers,
            "bit_identical": self.bit_identical,
            "differences": list(self.differences),
            "worst_ratio": self.worst_ratio,
            "allowed_ratio": ALLOWED_RATIO,
            "passed": self.passed,
            "url": self.url,
            "seconds": self.seconds,
        }
