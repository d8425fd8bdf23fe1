"""Statistics of many versions taken together: by array, by layer, and of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from deltastore.history.layers import projection
from deltastore.history.version_stats import ArrayStats, VersionStats

__all__ = ["ArraySummary", "Density", "densities", "summarize", "total_of"]


@dataclass(frozen=True, slots=True)
class ArraySummary:
    """One array over ``versions`` deltas; ``bound`` in bytes, None where it is not known."""

    pattern: str
    dtype: str
    versions: int
    elements: int
    changed: int
    nbytes: int
    bound: float | None

    @property
    def share(self) -> float:
        """The changed share of an average version."""
        return self.changed / (self.elements * self.versions) if self.elements else 0.0


def summarize(stats: Sequence[VersionStats]) -> list[ArraySummary]:
    """The arrays of all deltas, in the order in which they come up."""
    found: dict[tuple[str, str, int], list[ArrayStats]] = {}
    for version in stats:
        for array in version.arrays:
            found.setdefault((array.pattern, array.dtype, array.elements), []).append(array)
    return [_summary(arrays) for arrays in found.values()]


def _summary(arrays: list[ArrayStats]) -> ArraySummary:
    first = arrays[0]
    bounds = [array.bound.nbytes for array in arrays]
    return ArraySummary(
        *(first.pattern, first.dtype, len(arrays), first.elements),
        sum(sum(one.written.values()) if one.changed is None else one.changed for one in arrays),
        sum(sum(one.nbytes.values()) for one in arrays),
        None if None in bounds else sum(bound for bound in bounds if bound is not None),
    )


@dataclass(frozen=True, slots=True)
class Density:
    """The changed share of each layer and projection of an average version.

    ``shares`` by (layer, projection); ``others`` by name: what is in no layer.
    """

    layers: tuple[int, ...]
    projections: tuple[str, ...]
    shares: dict[tuple[int, str], float]
    others: dict[str, float]


def densities(stats: Sequence[VersionStats]) -> Density:
    """The shares over all deltas. Arrays of one projection (of other shapes, or types) count together."""
    whole: Counter[tuple[int | None, str]] = Counter()
    some: Counter[tuple[int | None, str]] = Counter()
    for version in stats:
        for array in version.arrays:
            for layer in array.layers:
                place = layer.layer, projection(array.pattern)
                whole[place] += layer.elements
                some[place] += layer.changed
    shares = {place: some[place] / whole[place] for place in whole if whole[place]}
    layered = {(layer, name): share for (layer, name), share in shares.items() if layer is not None}
    names = dict.fromkeys(name for _, name in layered)
    return Density(
        tuple(sorted({layer for layer, _ in layered})),
        tuple(names),
        layered,
        {name: share for (layer, name), share in shares.items() if layer is None},
    )


def total_of(stats: Sequence[VersionStats]) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Over all deltas: bytes by what they are for, changed elements by their step, written ones by width."""
    nbytes: Counter[str] = Counter()
    steps: Counter[str] = Counter()
    written: Counter[str] = Counter()
    for version in stats:
        if version.kind == "delta":
            nbytes.update(version.nbytes)
            steps.update(version.steps or {})
            written.update(version.written)
    return nbytes, steps, written
