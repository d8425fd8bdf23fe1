"""``python -m deltastore.bench.soak``: exits with 1 when a promise was broken."""

from __future__ import annotations

import argparse
import asyncio
import sys

from deltastore.bench.soak.run import soak
from deltastore.bench.soak.tally import Tally

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Soak as the command line says, print the report, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m deltastore.bench.soak", description=__doc__)
    parser.add_argument(
        "url", help="a store: file:///abs/path, memory://name, s3://bucket/prefix?endpoint=..."
    )
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    tally = asyncio.run(soak(given.url, seconds=given.minutes * 60, seed=given.seed, progress=_progress))
    _say(f"seed {given.seed}", *tally.lines())
    return 1 if tally.problems else 0


def _progress(tally: Tally) -> None:
    done = f"{tally.streams} streams, {tally.versions} versions, {tally.compared} syncs"
    sys.stderr.write(f"{tally.seconds:6.0f} s: {done}\n")


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    raise SystemExit(main())
