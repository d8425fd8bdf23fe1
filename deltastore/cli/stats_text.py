"""Statistics of versions in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from deltastore.cli.aligned import columns
from deltastore.cli.wording import percent, plain, plural, size
from deltastore.history.across_versions import densities, summarize, total_of
from deltastore.history.version_stats import VersionStats, widths_in_order

__all__ = ["stats_lines"]

_BOUND: Final = ("bound", "ratio")


def stats_lines(found: Sequence[VersionStats], *, layers: bool) -> Iterator[str]:
    """Versions, arrays, bytes by what they are for, and with ``layers`` every layer."""
    deltas = [one for one in found if one.kind == "delta"]
    exact = all(one.steps is not None for one in deltas)
    yield from _versions(found, exact=exact)
    yield ""
    yield "bytes: a delta's packs and its manifest; an anchor's objects, their inventory and its manifest"
    if deltas and not exact:
        yield "±N: in runs of steps up to N; absolute: in runs of whole values; raw: in whole chunks"
    if deltas:
        yield ""
        yield from _arrays(deltas, exact=exact)
        yield ""
        yield from _bytes(deltas, anchors=len(found) - len(deltas))
        if layers:
            yield ""
            yield from _layers(deltas, exact=exact)


def _versions(found: Sequence[VersionStats], *, exact: bool) -> Iterator[str]:
    counted = "changed" if exact else "written"
    heads = ["version", "base", "step", counted, "bytes", f"B/{counted}", *_BOUND]
    classes = [name for one in found[::-1] if one.steps for name in one.steps] if exact else []
    classes = list(dict.fromkeys(classes)) or widths_in_order(width for one in found for width in one.written)
    names = [f"±{(1 << int(width) - 1) - 1}" if width.isdigit() else width for width in classes]
    rows = []
    for one in found:
        counts = (one.steps if exact else one.written) or {}
        shares = [percent(counts.get(name, 0), one.counted) if counts else "" for name in classes]
        rows.append([*_row(one), *shares])
    yield from _filled([*heads, *(classes if exact else names)], rows, indent=0)


def _filled(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: frozenset[str] = frozenset(),
    indent: int = 2,
) -> Iterator[str]:
    """Columns, without those of the bound where it is nowhere known."""
    kept = [at for at, head in enumerate(heads) if head not in _BOUND or any(row[at] for row in rows)]
    chosen = [[row[at] for at in kept] for row in rows]
    yield from columns([heads[at] for at in kept], chosen, left=left, indent=indent)


def _row(one: VersionStats) -> list[str]:
    delta = one.kind == "delta"
    bound = None if one.bound is None else one.bound.nbytes
    return [
        *(str(one.version), "anchor" if one.base is None else str(one.base)),
        *("" if one.step is None else plain(one.step), percent(one.counted, one.elements) if delta else ""),
        *(size(one.total), _number(one.per_changed, 2)),
        *(
            _number(bound / one.counted if bound is not None and one.counted else None, 2),
            _number(one.ratio, 3),
        ),
    ]


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _arrays(deltas: Sequence[VersionStats], *, exact: bool) -> Iterator[str]:
    yield f"by array, {plural(len(deltas), 'delta')} together"
    counted = "changed" if exact else "written"
    heads = ("elements", counted, "bytes", f"B/{counted}", "ratio", "array")
    rows = [
        (
            *(f"{one.elements:,}", percent(one.changed, one.elements * one.versions), size(one.nbytes)),
            _number(one.nbytes / one.changed if one.changed else None, 2),
            _number(one.nbytes / one.bound if one.bound else None, 3),
            plain(one.pattern),
        )
        for one in summarize(deltas)
    ]
    yield from _filled(heads, rows, left=frozenset({"array"}))


def _bytes(deltas: Sequence[VersionStats], *, anchors: int) -> Iterator[str]:
    nbytes, _, _ = total_of(deltas)
    whole = sum(nbytes.values())
    without = f"; without {plural(anchors, 'anchor')}" if anchors else ""
    yield f"what took the bytes, {size(whole)} in all{without}"
    yield "  " + ", ".join(f"{name} {percent(count, whole)}" for name, count in _largest(nbytes))


def _largest(counts: Counter[str]) -> list[tuple[str, int]]:
    return [(name, count) for name, count in counts.most_common() if count]


def _layers(deltas: Sequence[VersionStats], *, exact: bool) -> Iterator[str]:
    found = densities(deltas)
    yield f"by layer, {'changed' if exact else 'written'} of each projection"
    rows = [
        [str(layer), *(_share(found.shares.get((layer, name))) for name in found.projections)]
        for layer in found.layers
    ]
    yield from columns(["layer", *map(plain, found.projections)], rows)
    for name, share in found.others.items():
        yield f"  in no layer: {plain(name)} {_share(share)}"


def _share(share: float | None) -> str:
    if share is None:
        return ""
    return "<0.01 %" if 0 < share < 5e-5 else f"{100 * share:.2f} %"
