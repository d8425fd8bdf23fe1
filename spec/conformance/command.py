"""The command line."""

from __future__ import annotations

import argparse
import sys

from spec.conformance.run import run


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m spec.conformance",
        description="Test an implementation of the format through its standard input and output: "
        "spec/README.md says how it is asked and how it answers. The status is 0 if all that it supports "
        "is right, 1 if something is wrong or nothing is supported, 2 if it cannot be started.",
    )
    parser.add_argument("--json", action="store_true", help="print the results as one JSON object")
    parser.add_argument(
        "--timeout", type=float, default=20, metavar="S", help="seconds for a reply (default 20)"
    )
    parser.add_argument("--failures", type=int, default=10, metavar="N", help="failures to show (default 10)")
    parser.add_argument(
        "--only", action="append", metavar="FILE", help="ask only what is of this file, such as patch.json"
    )
    parser.add_argument("command", metavar="COMMAND", help="the implementation")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARG", help="its arguments")
    return parser


def main(arguments: list[str]) -> int:
    """Run and report."""
    given = _parser().parse_args(arguments)
    try:
        results = run(
            [given.command, *given.arguments],
            timeout=given.timeout,
            wanted=lambda case: given.only is None or case.file in given.only,
        )
    except OSError as error:
        print(f"{given.command} cannot be started: {error.strerror}", file=sys.stderr)
        return 2
    print(results.as_json() if given.json else results.table(given.failures))
    return 0 if results.ok else 1
