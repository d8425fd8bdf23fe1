"""Running a command: every expected failure becomes one line on stderr and an exit status."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Sequence
from typing import Final, cast

import typer
from typer.main import get_command

from deltastore.cli.app import app
from deltastore.cli.wording import plain
from deltastore.errors import DeltastoreError

__all__ = ["run_command"]

# Typer shows every mistake on a command line as one class, of which only this subclass has a public name.
_MISTAKE: Final = cast("type[typer.BadParameter]", typer.BadParameter.__mro__[1])

_FAILED: Final = 1
_USAGE: Final = 2
_INTERRUPTED: Final = 130


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run the command line ``arguments`` (default: that of the process); return the exit status.

    Only errors that deltastore raises on purpose, refusals of the operating system and interrupts are
    caught: anything else is a defect, and its traceback is wanted.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that lacks a letter gets its escape, not a traceback.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        return _run(given)
    except BrokenPipeError:
        return _reader_left()
    except DeltastoreError as error:
        _report(given, error.code, str(error), error.where)
        return error.exit_status
    except _MISTAKE as error:
        where = error.ctx.command_path if error.ctx is not None else "deltastore"
        message = f"{error.format_message().removesuffix('.')}; see '{where} --help'"
        _report(given, "usage", message, None)
        return _USAGE
    except OSError as error:
        place = "cannot go on" if error.filename is None else error.filename
        _report(given, "bad_argument", f"{place}: {error.strerror or error}", error.filename)
        return _FAILED
    except (KeyboardInterrupt, typer.Abort):
        return _INTERRUPTED


def _run(given: list[str]) -> int:
    """The status is what a command exits with; Typer turns an interrupt into 130 itself."""
    status = get_command(app).main(args=given, prog_name="deltastore", standalone_mode=False)
    sys.stdout.flush()
    return status if isinstance(status, int) else 0


def _report(given: list[str], code: str, message: str, where: object) -> None:
    line = plain(" ".join(message.split()))
    if "--json" in given:
        place = None if where is None else str(where)
        facts = {"error": {"code": code, "message": line, "where": place}}
        # That stdout cannot be written to may be the very thing to report.
        with contextlib.suppress(OSError):
            typer.echo(json.dumps(facts))
    typer.echo(f"deltastore: error: {line}", err=True)


def _reader_left() -> int:
    """Whoever read stdout is gone, as in ``deltastore log URL | head``: what is left to say goes nowhere."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return _FAILED
