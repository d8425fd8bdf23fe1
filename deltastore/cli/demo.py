"""``deltastore demo``: a trainer and two engines on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deltastore.cli.arguments import Json

__all__ = ["demo"]


def demo(
    steps: Annotated[int, typer.Option("--steps", metavar="N", min=1, help="Versions to publish.")] = 20,
    store: Annotated[
        Path | None, typer.Option("--store", metavar="DIR", help="Where to make the stream, and keep it.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the stream, and say where it is.")] = False,
    as_json: Json = False,
) -> None:
    """Train, publish and follow on this machine.

    A small model is trained on real text, every step is published, and two reader processes follow. Exits
    with 1 when a reader ever differs from the trainer by a bit, or a version is larger than it should be.
    Needs torch and transformers: pip install 'deltastore[demo]'.
    """
    from deltastore.demo.run import run

    raise typer.Exit(run(steps=steps, store=store, keep=keep, as_json=as_json))
