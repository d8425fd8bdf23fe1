"""A process that waits at a gate and then creates one object: ``racing_writer.py ROOT KEY NUMBER GATE``.

Prints True if it created the object, of :func:`content`, and False if the key had one.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from deltastore.stores.local import LocalStore


def content(number: int) -> bytes:
    """Return what writer ``number`` writes: long enough to be torn, and unlike any other writer's."""
    return bytes([number]) * (100_000 + number)


def main(root: str, key: str, number: str, gate: str) -> None:
    """Wait until the gate, a pipe, is closed at its other end; then write."""
    os.read(int(gate), 1)
    created = asyncio.run(LocalStore(Path(root)).put_if_absent(key, content(int(number))))
    sys.stdout.write(f"{created}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
