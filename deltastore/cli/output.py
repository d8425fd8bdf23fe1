"""Where words go: results to stdout, everything said on the way to stderr."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import typer

__all__ = ["Output"]


class Output:
    """What one command prints.

    With ``--json`` stdout carries only JSON, one object a line, and nothing for people.
    """

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def result(self, facts: Mapping[str, Any], *lines: str) -> None:
        """The same result twice: ``facts`` as one JSON object, or ``lines`` for people."""
        texts = (json.dumps(facts),) if self.as_json else lines
        for text in texts:
            typer.echo(text)

    def warn(self, message: str) -> None:
        """Something that went otherwise than wanted, but did not stop the command."""
        typer.echo(f"deltastore: warning: {message}", err=True)

    def fail(self, message: str) -> None:
        """Why the exit status will not be 0, in one line."""
        typer.echo(f"deltastore: error: {message}", err=True)
