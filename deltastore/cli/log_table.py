"""The log as a table."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

from rich.console import Console
from rich.table import Table

from deltastore.cli.summary import Summary
from deltastore.cli.wording import moment, percent, plain, size

__all__ = ["print_table"]

_COLUMNS: Final = ("slot", "kind", "version", "base", "epoch", "changed", "bytes", "step", "time (UTC)")
_LEFT: Final = frozenset({"kind", "time (UTC)"})
_WIDE: Final = 1000
"""Characters a line may have where no terminal limits it."""


def print_table(rows: Iterable[Summary]) -> None:
    """Print one line for each record on stdout."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    for name in _COLUMNS:
        table.add_column(name, justify="left" if name in _LEFT else "right", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row))
    width = None if sys.stdout.isatty() else _WIDE
    # Names come from the store: nothing in them is markup.
    Console(width=width, markup=False, emoji=False, highlight=False).print(table)


def _cells(row: Summary) -> tuple[str, ...]:
    changed = "" if row.changed is None or row.elements is None else percent(row.changed, row.elements)
    return (
        str(row.slot),
        plain(row.kind),
        _shown(row.version),
        _shown(row.base),
        str(row.epoch),
        changed,
        "" if row.bytes is None else size(row.bytes),
        _shown(row.step),
        moment(row.time),
    )


def _shown(value: object) -> str:
    return "" if value is None else plain(value)
