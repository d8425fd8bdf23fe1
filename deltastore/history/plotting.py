"""Statistics of versions as a picture: size over versions, density of layers and projections, steps."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from deltastore.errors import InputError
from deltastore.history.across_versions import Density, densities, total_of
from deltastore.history.version_stats import VersionStats, widths_in_order

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Picture"]

Values = np.ndarray[Any, Any]

_PARTS: Final = {
    "low bits": "#1f5f8b",
    "high bits": "#5aa0c8",
    "residues": "#e08e45",
    "raw": "#b5483a",
    "index": "#7a7a7a",
    "run headers": "#a9a9a9",
    "manifest": "#d4d4d4",
}
"""What bytes are for, from the axis upwards, and its colour."""

_UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes"))
_MOST_TICKS: Final = 26
_DECADES: Final = 100
"""A logarithmic scale reaches down to the largest share by this: below, differences hardly matter."""

_MOST_URL: Final = 100
"""Characters of a URL that are shown: its end."""

_BARS: Final = 80
"""So many versions have a bar each; more are drawn as one filled line of steps."""

_DPI: Final = 150


class Picture:
    """A file to draw into.

    Raises ``InputError("bad_argument")``: another ending, a place that cannot be written, or no matplotlib.
    """

    def __init__(self, file: str) -> None:
        self._path = Path(file)
        if self._path.suffix.lower() not in (".png", ".svg"):
            raise InputError("bad_argument", f"a plot is a .png or an .svg file, not {file!r}", where=file)
        folder = self._path.parent
        if not folder.is_dir():
            raise _unwritable(file, f"there is no folder {folder}; create it")
        if self._path.is_dir() or not os.access(self._path if self._path.exists() else folder, os.W_OK):
            raise _unwritable(file, "permission denied, or it is a folder; give another path")
        try:
            import matplotlib  # noqa: F401
        except ImportError:
            message = "drawing needs the package matplotlib: pip install 'deltastore[plot]'"
            raise InputError("bad_argument", message) from None

    def write(self, stats: Sequence[VersionStats], url: str) -> None:
        """Draw all deltas among ``stats``, which are of the stream at ``url``.

        Raises ``InputError("bad_argument")`` where there is none, or where the file cannot be written.
        """
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        deltas = [one for one in stats if one.kind == "delta"]
        if not deltas:
            raise InputError("bad_argument", "no delta is among these versions: there is nothing to draw")
        density = densities(deltas)
        height = min(max(6.5, 0.16 * len(density.layers) + 3.2), 18)
        width = 7.2 + min(max(4.5, 0.62 * len(density.projections) + 1.8), 12)
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        _draw(figure, stats, density, width, url)
        try:
            figure.savefig(self._path, dpi=_DPI)
        except OSError as error:
            problem = f"{error.strerror or error}; give a path with room"
            raise _unwritable(str(self._path), problem) from None


def _unwritable(file: str, problem: str) -> InputError:
    return InputError("bad_argument", f"the plot {file} cannot be written: {problem}", where=file)


def _draw(figure: Figure, stats: Sequence[VersionStats], density: Density, width: float, url: str) -> None:
    grid = figure.add_gridspec(2, 2, width_ratios=[6.6, width - 6.6], height_ratios=[1.15, 1])
    _sizes(figure.add_subplot(grid[0, 0]), stats)
    _steps(figure.add_subplot(grid[1, 0]), stats)
    _heat(figure, figure.add_subplot(grid[:, 1]), density, exact=_exact(stats))
    deltas = [one for one in stats if one.kind == "delta"]
    share = 100 * sum(one.share for one in deltas) / len(deltas)
    # A dollar sign would begin a formula.
    shown = (url if len(url) <= _MOST_URL else f"…{url[1 - _MOST_URL :]}").replace("$", r"\$")
    figure.suptitle(
        f"{shown}\nVersions {stats[0].version} to {stats[-1].version}: on average {share:.3g} % of "
        f"{stats[-1].elements:,} elements {'changed' if _exact(stats) else 'written'}",
        fontsize=12,
    )


def _exact(stats: Sequence[VersionStats]) -> bool:
    """Whether steps are known, and so changes."""
    return any(one.steps is not None for one in stats)


def _sizes(axes: Axes, stats: Sequence[VersionStats]) -> None:
    """Bytes of each delta by what they are for; anchors, which are far larger, as marks."""
    from matplotlib.ticker import MaxNLocator

    deltas = [one for one in stats if one.kind == "delta"]
    largest = max(one.total for one in deltas)
    unit, name = next((unit, name) for unit, name in _UNITS if largest >= unit)
    at = np.array([one.version for one in deltas])
    below = np.zeros(len(deltas))
    for part, colour in _PARTS.items():
        amount = np.array([one.nbytes.get(part, 0) for one in deltas]) / unit
        if not amount.any():
            continue
        if len(at) <= _BARS:
            axes.bar(at, amount, 0.85, below, color=colour, label=part, linewidth=0)
        else:
            _fill(axes, at, below, below + amount, colour, part)
        below += amount
    bounds = [None if one.bound is None else one.bound.nbytes for one in deltas]
    if None not in bounds:
        line = np.array([bound for bound in bounds if bound is not None]) / unit
        few = len(at) <= _BARS
        axes.plot(
            at,
            line,
            color="black",
            linewidth=1 if few else 0.5,
            marker="." if few else "",
            label="bound",
            drawstyle="default" if few else "steps-mid",
        )
    anchors = [one.version for one in stats if one.kind == "anchor"]
    for number, version in enumerate(anchors):
        label = f"anchor ({_size_text(stats, version)})" if number == 0 else None
        axes.axvline(version, color="#5b8c5a", linewidth=1.2, linestyle="--", label=label)
    axes.set(title="Size of versions", xlabel="version", ylabel=name)
    axes.set_ylim(0, below.max() * 1.05)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.legend(fontsize=7.5, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    _tidy(axes)


def _fill(axes: Axes, at: Values, low: Values, high: Values, colour: str, label: str) -> None:
    """A band over the versions ``at``, each one wide; where versions are missing, there is nothing."""
    breaks = np.flatnonzero(np.diff(at) != 1) + 1
    for number, (ats, lows, highs) in enumerate(
        zip(*(np.split(values, breaks) for values in (at, low, high)), strict=True)
    ):
        edges = np.append(ats - 0.5, ats[-1] + 0.5)
        axes.fill_between(
            edges,
            np.append(lows, lows[-1]),
            np.append(highs, highs[-1]),
            step="post",
            color=colour,
            linewidth=0,
            label=label if number == 0 else None,
        )


def _size_text(stats: Sequence[VersionStats], version: int) -> str:
    total = next(one.total for one in stats if one.version == version)
    unit, name = next((unit, name) for unit, name in _UNITS if total >= unit)
    return f"{total / unit:.3g} {name}"


def _steps(axes: Axes, stats: Sequence[VersionStats]) -> None:
    """How far elements moved, of all deltas; from packs alone, the widths of runs."""
    _, steps, written = total_of(stats)
    exact = _exact(stats)
    counts = steps if exact else written
    whole = sum(counts.values()) or 1
    names = ["−1", "+1", "±2 to 7", "±8 to 127", "±128 and more"]
    if not exact:
        counts = Counter({width: written[width] for width in widths_in_order(written)})
        names = [f"≤ {(1 << int(name) - 1) - 1}" if name.isdigit() else name for name in counts]
    shares = [100 * count / whole for count in counts.values()]
    bars = axes.bar(range(len(names)), shares, color="#e08e45", width=0.7)
    labels = [f"{share:.3g} %" for share in shares]
    axes.bar_label(bars, labels, fontsize=8, padding=2)
    axes.set_xticks(range(len(names)), names)
    axes.set(
        title="Steps of changed elements" if exact else "Elements written, by the largest step of their run",
        xlabel="step in ordered-integer space (+1 is the next representable number)",
        ylabel=f"share of {'changed' if exact else 'written'} elements, %",
    )
    axes.set_ylim(0, max(shares, default=1) * 1.15 or 1)
    _tidy(axes)


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", linewidth=0.4, alpha=0.5)
    axes.set_axisbelow(True)


def _heat(figure: Figure, axes: Axes, density: Density, *, exact: bool) -> None:
    """The changed share of every layer and projection."""
    from matplotlib.colors import LogNorm, Normalize

    shares = np.full((len(density.layers), len(density.projections)), np.nan)
    for row, layer in enumerate(density.layers):
        for column, name in enumerate(density.projections):
            shares[row, column] = 100 * density.shares.get((layer, name), np.nan)
    axes.set_title(f"Mean share of elements {'changed' if exact else 'written'} in a version")
    if not shares.size:
        axes.text(0.5, 0.5, "no tensor is of a layer", ha="center", va="center", transform=axes.transAxes)
        axes.set_axis_off()
        return
    seen = shares[shares > 0]
    low, high = (float(seen.min()), float(seen.max())) if seen.size else (0.0, 1.0)
    wide = seen.size > 0 and high / low > 20
    floor = max(low, high / _DECADES)
    norm: Any = LogNorm(floor, high) if wide else Normalize(0, high)
    colours: Any = _colours()
    image = axes.imshow(np.ma.masked_invalid(shares), aspect="auto", cmap=colours, norm=norm)
    _name_axes(axes, density)
    _write_shares(axes, shares, norm)
    extend = "min" if wide and low < floor else "neither"
    bar = figure.colorbar(image, ax=axes, fraction=0.05, pad=0.02, extend=extend)
    bar.set_label(f"{'changed' if exact else 'written'} elements, %" + (" (logarithmic)" if wide else ""))
    bar.ax.yaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
    bar.ax.yaxis.set_minor_formatter(lambda *_: "")
    others = [f"{name} {100 * share:.3g} %" for name, share in density.others.items()]
    if others:
        text = "in no layer: " + ", ".join(others)
        figure.supxlabel(text if len(text) < 160 else text[:157] + "…", fontsize=8, x=0.99, ha="right")


def _colours() -> Any:
    from matplotlib import colormaps

    colours = colormaps["viridis"]
    return colours.with_extremes(bad="#eeeeee", under=colours(0.0))


def _name_axes(axes: Axes, density: Density) -> None:
    count = len(density.layers)
    every = max(1, -(-count // _MOST_TICKS))
    rows = range(0, count, every)
    axes.set_yticks(rows, [str(density.layers[row]) for row in rows], fontsize=8)
    axes.set_ylabel("layer")
    names = [name if len(name) <= 36 else f"{name[:35]}…" for name in density.projections]
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right", rotation_mode="anchor", fontsize=8)


def _write_shares(axes: Axes, shares: np.ndarray[Any, Any], norm: Any) -> None:
    """The numbers themselves, where there is room for them."""
    if shares.shape[0] > 16 or shares.shape[1] > 16:
        return
    for (row, column), share in np.ndenumerate(shares):
        if not np.isnan(share):
            text = "0" if share == 0 else f"{share:.2f}" if share >= 0.01 else f"{share:.1g}"
            colour = "#777777" if share == 0 else "white" if float(norm(share)) < 0.6 else "black"
            axes.text(column, row, text, ha="center", va="center", fontsize=7.5, color=colour)
