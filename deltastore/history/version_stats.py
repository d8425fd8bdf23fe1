"""What a version changed, how far, and what took its bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from deltastore.format.names import PLACE
from deltastore.format.pack import HEADER_BYTES
from deltastore.format.records import DeltaRecord, MetadataValue
from deltastore.history.array_tally import ABSOLUTE, BYTE_PARTS, RAW, ArrayTally, StepCounts
from deltastore.log import Manifest

__all__ = [
    "ArrayStats",
    "Bound",
    "DeltaTally",
    "LayerStats",
    "VersionStats",
    "anchor_stats",
    "widths_in_order",
]


@dataclass(frozen=True, slots=True)
class Bound:
    """The least bytes that say which elements changed, and how far; None where the latter is not known."""

    positions: float
    steps: float | None

    @property
    def nbytes(self) -> float | None:
        """Both together."""
        return None if self.steps is None else self.positions + self.steps

    def as_json(self) -> dict[str, float | None]:
        """Bytes, to a tenth."""
        return {
            "positions": round(self.positions, 1),
            "steps": None if self.steps is None else round(self.steps, 1),
        }


@dataclass(frozen=True, slots=True)
class LayerStats:
    """Elements of one layer of an array, and those of them that changed (from packs alone: were written)."""

    layer: int | None
    elements: int
    changed: int


@dataclass(frozen=True, slots=True)
class ArrayStats:
    """One array at one version; what ``VersionStats`` says, of this array alone.

    ``nbytes`` has no manifest and no pack headers.
    """

    pattern: str
    dtype: str
    elements: int
    changed: int | None
    patches: int
    written: dict[str, int]
    nbytes: dict[str, int]
    steps: dict[str, int] | None
    bound: Bound
    layers: tuple[LayerStats, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        counted = "written" if self.changed is None else "changed"
        return {
            "pattern": self.pattern,
            "dtype": self.dtype,
            "elements": self.elements,
            "changed": self.changed,
            "patches": self.patches,
            "written": self.written,
            "bytes": self.nbytes,
            "steps": self.steps,
            "bound": self.bound.as_json(),
            "layers": [
                {"layer": one.layer, "elements": one.elements, counted: one.changed} for one in self.layers
            ],
        }


@dataclass(frozen=True, slots=True)
class VersionStats:
    """One version.

    ``changed`` elements have other bits than at the base; None where only packs were looked at. ``said`` is
    what the manifest's statistics say. ``written`` elements stand in patches, by the width of their run.
    ``nbytes`` by what they are for: packs and manifest, or an anchor's objects. ``steps`` counts the changed
    elements by how far they moved.
    """

    version: int
    kind: str
    base: int | None
    step: MetadataValue
    elements: int
    said: int
    changed: int | None
    written: dict[str, int]
    nbytes: dict[str, int]
    steps: dict[str, int] | None
    bound: Bound | None
    arrays: tuple[ArrayStats, ...]

    @property
    def total(self) -> int:
        """All bytes of the version."""
        return sum(self.nbytes.values())

    @property
    def share(self) -> float:
        """The changed share of all elements; from packs alone, what is written of them."""
        return self.counted / self.elements if self.elements else 0.0

    @property
    def counted(self) -> int:
        """Elements that changed; from packs alone, elements that patches write."""
        return sum(self.written.values()) if self.changed is None else self.changed

    @property
    def per_changed(self) -> float | None:
        """Bytes for each of them; None for an anchor, or where there is none."""
        return self.total / self.counted if self.counted and self.kind == "delta" else None

    @property
    def ratio(self) -> float | None:
        """All bytes, of the bound."""
        least = None if self.bound is None else self.bound.nbytes
        return self.total / least if least else None

    def as_json(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "version": self.version,
            "kind": self.kind,
            "base": self.base,
            "step": self.step,
            "elements": self.elements,
            "changed": self.changed,
            "said_changed": self.said,
            "written": self.written,
            "bytes": self.nbytes,
            "total_bytes": self.total,
            "bytes_per_changed": _rounded(self.per_changed),
            "bound": None if self.bound is None else self.bound.as_json(),
            "over_bound": _rounded(self.ratio),
            "steps": self.steps,
            "arrays": [array.as_json() for array in self.arrays],
        }


def anchor_stats(record: Manifest) -> VersionStats:
    """A version that is stored whole: its size, and nothing else that could be compared."""
    said = record.statistics
    inventory = record.anchor.inventory_bytes if not isinstance(record, DeltaRecord) else 0
    nbytes = {"anchor": said.bytes + inventory, "manifest": len(record.to_bytes())}
    step = record.metadata.get("step")
    return VersionStats(
        *(record.version, record.kind, None, step, said.elements, said.changed, None),
        *({}, nbytes, None, None, ()),
    )


class DeltaTally:
    """A delta, array by array; ``exact``: changes are counted, not writes."""

    def __init__(self, record: DeltaRecord, *, exact: bool) -> None:
        said = record.statistics
        self._exact = exact
        self._said = (record.version, record.kind, record.base, record.metadata.get("step"))
        self._counts = (said.elements, said.changed)
        self._nbytes = Counter(
            {"index": HEADER_BYTES * len(record.packs), "manifest": len(record.to_bytes())}
        )
        self._written: Counter[str] = Counter()
        self._steps = StepCounts()
        self._arrays: list[ArrayStats] = []

    def add(self, tally: ArrayTally) -> None:
        """The next array of the table."""
        self._arrays.append(_array_stats(tally, self._exact))
        self._nbytes.update(tally.nbytes)
        self._written.update(tally.written)
        self._steps.include(tally.steps)

    def stats(self) -> VersionStats:
        """All of it."""
        exact, arrays = self._exact, tuple(self._arrays)
        positions = sum(array.bound.positions for array in arrays)
        return VersionStats(
            *self._said,
            *self._counts,
            changed=sum(array.changed or 0 for array in arrays) if exact else None,
            written=_in_order(self._written),
            nbytes={part: self._nbytes[part] for part in BYTE_PARTS},
            steps=self._steps.by_class() if exact else None,
            bound=Bound(positions, self._steps.bits() / 8 if exact else None),
            arrays=arrays,
        )


def _array_stats(tally: ArrayTally, exact: bool) -> ArrayStats:
    array, layers, steps = tally.array, tally.layers, tally.steps
    numbers: list[int | None] = layers.numbers.tolist() if PLACE in array.pattern.split(".") else []
    elements, counted = layers.elements.tolist(), tally.by_layer.tolist()
    return ArrayStats(
        pattern=array.pattern,
        dtype=array.dtype,
        elements=array.count * array.elements_per_member,
        changed=tally.changed if exact else None,
        patches=tally.patches,
        written=_in_order(tally.written),
        nbytes={part: tally.nbytes[part] for part in BYTE_PARTS if part != "manifest"},
        steps=steps.by_class() if exact else None,
        bound=Bound(tally.position_bits() / 8, steps.bits() / 8 if exact else None),
        layers=tuple(map(LayerStats, numbers or [None], elements, counted)),
    )


def widths_in_order(widths: Iterable[str]) -> list[str]:
    """Narrow runs first, then absolute ones, then raw; each once."""
    known = set(widths)
    narrow = sorted((width for width in known if width.isdigit()), key=int)
    return [*narrow, *(width for width in (ABSOLUTE, RAW) if width in known)]


def _in_order(written: Counter[str]) -> dict[str, int]:
    return {width: written[width] for width in widths_in_order(written)}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
