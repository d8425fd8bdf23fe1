"""A progress bar on stderr, where that is a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from deltastore.cli.wording import plain, size

__all__ = ["progress_bar"]

_REFRESH_SECONDS: Final = 0.1


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar to be called with (bytes done, bytes in all), gone at the end; None where nobody would see it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    columns = (
        SpinnerColumn(),  # it turns while no bytes move, as long as there is any progress
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[amount]}", markup=False),
        TimeRemainingColumn(),
    )
    # Drawn when bytes have moved, not from a thread.
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True) as progress:
        task = progress.add_task(plain(what), total=None, amount="")
        drawn = -_REFRESH_SECONDS

        def reach(done: int, total: int) -> None:
            nonlocal drawn
            progress.update(task, completed=done, total=total, amount=f"{size(done)} of {size(total)}")
            now = time.monotonic()
            if now - drawn >= _REFRESH_SECONDS:
                drawn = now
                progress.refresh()

        yield reach
