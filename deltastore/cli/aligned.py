"""Columns of text for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

__all__ = ["columns"]


def columns(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    left: frozenset[str] = frozenset(),
    indent: int = 2,
) -> Iterator[str]:
    """A line of heads and one for each row; cells stand to the right, in columns ``left`` to the left."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for cells in (heads, *rows):
        line = "  ".join(
            cell.ljust(width) if head in left else cell.rjust(width)
            for head, cell, width in zip(heads, cells, widths, strict=True)
        )
        yield (" " * indent + line).rstrip()
