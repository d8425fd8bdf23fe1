"""A process that forks writers and lets each die at a later system call: ``dying_writer.py FOLDER METHOD``.

The n-th writer works in the store ``FOLDER/n``, where the object ``a/old`` exists, and dies right before
its n-th call of those in :data:`CALLS`, as by kill -9. It writes :data:`NEW` to ``a/b/new`` and then to
``a/old``. The last one lives to the end. Prints the number of writers.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deltastore.stores.local import LocalStore

CALLS = ("mkdir", "open", "write", "fsync", "close", "link", "replace", "unlink")
OLD = b"old" * 30_000
NEW = b"new" * 40_000


def write(root: Path, method: str) -> None:
    """Write the two objects."""

    async def both() -> None:
        store = LocalStore(root)
        for key in ("a/b/new", "a/old"):
            await getattr(store, method)(key, NEW)

    asyncio.run(both())


def die_at(count: int) -> None:
    """Make this process end at its ``count``-th call."""
    left = count

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os._exit(9)
            return call(*args, **named)

        return counting

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))


def main(folder: str, method: str) -> None:
    """Fork writers until one lives."""
    for count in range(1, 1000):
        root = Path(folder, str(count))
        (root / "a").mkdir(parents=True)
        (root / "a" / "old").write_bytes(OLD)
        child = os.fork()
        if child == 0:
            die_at(count)
            write(root, method)
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
            sys.stdout.write(f"{count}\n")
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
