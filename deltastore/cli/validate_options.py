"""The options of ``deltastore validate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = [
    "ChecksOption",
    "DeepOption",
    "JobsOption",
    "LayoutPath",
    "LevelName",
    "LevelOption",
    "LimitOption",
    "LivePath",
    "NonceOption",
    "ResumeOption",
    "VersionOption",
]

LevelName = Literal["structure", "content", "deep"]

LevelOption = Annotated[
    LevelName | None,
    typer.Option(
        "--level",
        help="structure: the log, and whether all objects are there. content: every byte of them. "
        "deep: also by replay of the weights. [content]",
    ),
]
DeepOption = Annotated[bool, typer.Option("--deep", help="The same as --level deep.")]
VersionOption = Annotated[
    str | None,
    typer.Option(
        "--version", metavar="N", help="Only what reading this version takes, or 'latest'. [all versions]"
    ),
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs", metavar="N", min=1, max=256, help="Objects side by side. [two for each processor]"
    ),
]
ResumeOption = Annotated[
    Path | None,
    typer.Option(
        "--resume",
        metavar="FILE",
        dir_okay=False,
        help="Note there which versions are sound, and do not read again those that are noted.",
    ),
]
LimitOption = Annotated[
    int, typer.Option("--limit", metavar="N", min=0, help="How many problems to list; 0: all of them.")
]
ChecksOption = Annotated[
    bool, typer.Option("--checks", help="Print every requirement of SPEC.md and what was found of it.")
]
LivePath = Annotated[
    Path | None,
    typer.Option(
        "--live",
        metavar="PATH",
        help="Compare live weights with a version instead: a dump (safetensors, by tensor names, or by "
        "parameter names with a layout), or what reader.attest(path) wrote, or a folder of that.",
    ),
]
NonceOption = Annotated[
    str | None,
    typer.Option(
        "--nonce",
        metavar="HEX",
        help="With --live: what readers were asked to say, as attest(nonce=); others are refused as stale.",
    ),
]
LayoutPath = Annotated[
    Path | None,
    typer.Option(
        "--layout", metavar="FILE", help="With --live: a layout.json, by default the one beside the dump."
    ),
]
