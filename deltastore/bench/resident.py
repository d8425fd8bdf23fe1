"""How far the memory of this process rises while something runs (Linux)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Rise", "measured_rise"]

_SELF = Path("/proc/self")


@dataclass(slots=True)
class Rise:
    """Bytes of resident memory at the highest point above those at the beginning."""

    nbytes: int = 0


@contextmanager
def measured_rise() -> Iterator[Rise]:
    """Measure what the block takes; the result is there when it has ended. Not to be nested."""
    (_SELF / "clear_refs").write_text("5", encoding="ascii")  # the highest point so far is forgotten
    rise, before = Rise(), _status("VmRSS")
    try:
        yield rise
    finally:
        rise.nbytes = max(_status("VmHWM") - before, 0)


def _status(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB$", (_SELF / "status").read_text(encoding="ascii"), re.MULTILINE)
    if found is None:
        raise OSError(f"/proc/self/status has no {field}")
    return int(found[1]) * 1024
