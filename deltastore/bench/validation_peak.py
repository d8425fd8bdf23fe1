"""Check a stream in this process and print the most memory it had, in bytes (Linux).

python -m deltastore.bench.validation_peak URL JOBS [LEVEL]
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path

from deltastore.stores.open import open_store
from deltastore.validate import Level, validate

__all__ = ["peak_bytes"]


def peak_bytes() -> int:
    """The most resident memory that this very process has had."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    if found is None:
        raise OSError("/proc/self/status has no VmHWM")
    return int(found[1]) * 1024


async def _check(url: str, jobs: int, level: Level) -> None:
    async with open_store(url) as store:
        report = await validate(store, level=level, jobs=jobs)
    if not report.ok:
        raise SystemExit(report.problems[0].message)


if __name__ == "__main__":
    url, jobs, *level = sys.argv[1:]
    asyncio.run(_check(url, int(jobs), Level[level[0].upper()] if level else Level.CONTENT))
    sys.stdout.write(f"{peak_bytes()}\n")
