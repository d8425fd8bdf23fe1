"""The command line: one file per verb. Heavy modules are imported inside the commands that need them."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, by default that of the process, and return its exit status (SPEC section "Errors")."""
    from deltastore.cli.failures import run_command

    return run_command(arguments)
