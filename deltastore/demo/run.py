"""One run of the demo: from its arguments to its exit status."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from deltastore.demo.fleet import EngineFailedError
from deltastore.demo.measure import measure
from deltastore.demo.model import require_libraries
from deltastore.demo.table import show
from deltastore.errors import InputError

__all__ = ["run"]

_PREFIX: Final = "deltastore-demo-"


def run(*, steps: int, store: Path | None, keep: bool, as_json: bool) -> int:
    """Train, publish after each of ``steps`` optimizer steps, follow with two engines, compare, and report.

    ``store``: an empty or absent folder where the stream is made and stays; ``keep``: it stays in a new
    folder. The report goes to standard output, as a table or as one JSON object; all else to standard error.

    Returns 0 if all bits were equal and every version was small enough, else 1; also 1 if an engine failed,
    which is then shown with what it wrote. Raises ``InputError("bad_argument")``.
    """
    if steps < 1:
        raise InputError("bad_argument", f"the demo takes 1 step or more, not {steps}")
    require_libraries()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as work:
        folder = Path(work).resolve()
        home = _home(store, keep)
        url = (home or folder / "store").as_uri()
        progress = Console(stderr=True)
        try:
            facts = measure(url=url, stays=home is not None, steps=steps, work=folder, progress=progress)
        except EngineFailedError as error:
            return _report_failure(error, as_json)
    if as_json:
        sys.stdout.write(json.dumps(facts.as_json()) + "\n")
    else:
        show(facts, Console())
    return 0 if facts.passed else 1


def _home(store: Path | None, keep: bool) -> Path | None:
    """The folder of a stream that stays, made if need be."""
    if store is None:
        return Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve() if keep else None
    try:
        store.mkdir(parents=True, exist_ok=True)
        taken = next(store.iterdir(), None) is not None
    except OSError as error:
        raise InputError(
            "bad_argument",
            f"{store} cannot hold the stream ({error.strerror}): give a folder that can be written",
        ) from None
    if taken:
        raise InputError("bad_argument", f"{store} is not empty: give a new folder for the stream")
    return store.resolve()


def _report_failure(error: EngineFailedError, as_json: bool) -> int:
    Console(stderr=True).print(Text(f"deltastore: error: {error}"), soft_wrap=True)
    if as_json:
        sys.stdout.write(json.dumps({"error": {"code": None, "message": str(error), "where": None}}) + "\n")
    return 1
