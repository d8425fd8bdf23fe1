"""The facts of a run for people: a table and what it means."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from deltastore.demo.bound import ALLOWED_RATIO, FIXED_BYTES
from deltastore.demo.engine import PROMPT
from deltastore.demo.facts import Facts, VersionFacts

__all__ = ["show"]

_HEADINGS = (
    "version",
    "changed",
    "size\nbytes",
    "bytes /\nchanged",
    "bound\nbytes",
    "ratio",
    "publish\nms",
    "visible\nms",
    "pause\nms",
)

_CAPTION = (
    "size: packs with their index, and the manifest.  bound: entropy of which elements changed and how far.  "
    f"ratio: (size - {FIXED_BYTES}) / bound.  visible: from the call of publish to the end of the apply, "
    "for each engine.  pause: for how long of that its weights were not to be used."
)


def show(facts: Facts, console: Console) -> None:
    """Print everything that the run has shown."""
    console.print(_table(facts))
    console.print(Text(f"\n{_CAPTION}\n", style="dim"))
    console.print(_verdict(facts.bit_identical, _truth(facts)))
    for difference in facts.differences:
        console.print(Text(f"  {difference}"))
    console.print(_verdict(facts.small, _sizes(facts)))
    console.print(Text(_sample(facts)))
    console.print(Text(f"{facts.seconds:.0f} s in all"))
    if facts.url is not None:
        # A line that is broken cannot be copied.
        console.print(Text(_next_commands(facts.url, facts.versions[-1].version)), soft_wrap=True)


def _table(facts: Facts) -> Table:
    # Narrow enough for 80 columns.
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for heading in _HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    for version in facts.versions:
        table.add_row(*_row(version))
    return table


def _row(version: VersionFacts) -> tuple[str, ...]:
    return (
        str(version.version),
        f"{version.density:.2%}",
        f"{version.nbytes:,}",
        _decimal(version.bytes_per_changed, 2),
        f"{version.bound.nbytes:,.0f}",
        _decimal(version.ratio, 3),
        f"{version.publish_ms:.0f}",
        "/".join(f"{arrival.visible_ms:.0f}" for arrival in version.arrivals),
        "/".join(f"{arrival.pause_ms:.1f}" for arrival in version.arrivals),
    )


def _decimal(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _verdict(passed: bool, text: str) -> Text:
    return Text.assemble(("PASS" if passed else "FAIL", "bold green" if passed else "bold red"), f"  {text}")


def _truth(facts: Facts) -> str:
    count = len(facts.versions) + 1
    if facts.bit_identical:
        return f"readers are bit-identical to the trainer at all {count} versions"
    return "readers are not bit-identical to the trainer:"


def _sizes(facts: Facts) -> str:
    rule = f"size <= {ALLOWED_RATIO} x bound + {FIXED_BYTES} bytes for every version with 0.3 to 3 % changed"
    if facts.worst_ratio is None:
        return f"{rule}: no version has such a share"
    return f"{rule}: worst ratio {facts.worst_ratio:.3f}"


def _sample(facts: Facts) -> str:
    name, tokens = next(iter(facts.readers)), facts.versions[-1].arrivals[0].tokens
    return f"{name} continues {PROMPT.decode()!r} with {bytes(tokens).decode(errors='replace')!r}"


def _next_commands(url: str, version: int) -> str:
    return (
        f"the stream stays at {url}; try\n"
        f"  deltastore log {url}\n"
        f"  deltastore show {url} {version}\n"
        f"  deltastore validate {url}\n"
        f"  deltastore export {url} --out ./exported"
    )
