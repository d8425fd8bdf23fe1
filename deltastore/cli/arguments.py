"""Arguments and options that several commands have, and what every help ends with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from deltastore.errors import UsageError
from deltastore.format.limits import MAX_INTEGER

__all__ = [
    "EXIT_STATUS",
    "LATEST",
    "Json",
    "Label",
    "SingleWriter",
    "StreamUrl",
    "Version",
    "parse_label",
    "parse_metadata",
    "parse_version",
]

EXIT_STATUS: Final = """\b
Exit status:
  0    success
  1    error
  2    usage: the command line makes no sense
  10   no such stream or version
  11   conflict, or fenced by a newer epoch
  12   corrupt
  13   a format version that this release does not know
  130  interrupted"""

LATEST: Final = "latest"

StreamUrl = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        help="Where the stream is: s3://bucket/prefix, file:///abs/path, or a path that starts with / or ./.",
    ),
]
Version = Annotated[str, typer.Option("--version", metavar="N", help="A version, by default the newest one.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, and nothing else there.")]
SingleWriter = Annotated[
    bool,
    typer.Option(
        "--single-writer",
        help="No second writer can ever exist: use a store that cannot create conditionally.",
    ),
]
Label = Annotated[
    str, typer.Option("--label", metavar="TEXT", help="Who publishes, for people who read the log.")
]

_LABEL_LENGTH: Final = 200
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,15}", re.ASCII)


def parse_version(text: str) -> int | None:
    """A version as a number; None for ``latest``. Raises ``UsageError``."""
    if text == LATEST:
        return None
    if _NUMBER.fullmatch(text) is None:
        raise UsageError("usage", f"a version is a number or '{LATEST}', not {text!r}")
    return int(text)


def parse_label(text: str) -> str:
    """A label that a record can hold; ``UsageError``."""
    if len(text) > _LABEL_LENGTH:
        raise UsageError(
            "usage", f"the label has {len(text)} characters, above {_LABEL_LENGTH}: give a shorter one"
        )
    return _unicode("the label", text)


def parse_metadata(pairs: Sequence[str], step: int | None) -> dict[str, str | int]:
    """``KEY=VALUE`` texts and the step as user metadata; ``UsageError`` for one that cannot be meant.

    Values stay text, whatever they look like: 1e-6 has no other exact form in a record.
    """
    metadata: dict[str, str | int] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError("usage", f"--meta {pair!r} has no '=': write --meta KEY=VALUE")
        if key == "step":
            raise UsageError("usage", "--meta step=... would be text: give the step with --step")
        if key in metadata:
            raise UsageError("usage", f"--meta {key!r} is given twice: give each key once")
        metadata[key] = _unicode(f"--meta {key!r}", value)
    if step is None:
        return metadata
    if step > MAX_INTEGER:
        raise UsageError("usage", f"step {step} is above {MAX_INTEGER}, the largest that a record holds")
    return {**metadata, "step": step}


def _unicode(what: str, text: str) -> str:
    """Bytes of the command line that are no UTF-8 arrive as lone surrogates, which JSON cannot hold."""
    if not text.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise UsageError("usage", f"{what} is not valid UTF-8: {text!r}")
    return text
