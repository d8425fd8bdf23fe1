"""Asking an implementation everything."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from spec.conformance import vectors
from spec.conformance.case import Case
from spec.conformance.implementation import Implementation, NoReplyError
from spec.conformance.report import Results
from spec.conformance.stores import Stores, broken_cases, edited_cases, sound_cases

Wanted = Callable[[Case], bool]


def every_case(folder: Path) -> Iterator[Case]:
    """All cases; stores are made below ``folder``."""
    stores = Stores(folder)
    yield from vectors.cases()
    yield from vectors.encodings()
    yield from sound_cases(stores)
    yield from edited_cases(stores)
    yield from broken_cases(stores)


def run(command: list[str], *, timeout: float, restarts: int = 5, wanted: Wanted = lambda _: True) -> Results:
    """Ask ``command`` all wanted cases; OSError if it cannot be started.

    ``timeout``: seconds for a reply. ``restarts``: how often it is started again after it hung or died.
    """
    implementation = Implementation(command, timeout=timeout, restarts=restarts)
    try:
        with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
            return ask_all(implementation, filter(wanted, every_case(Path(folder).resolve())))
    finally:
        implementation.close()


def ask_all(implementation: Implementation, cases: Iterable[Case]) -> Results:
    """What came of cases."""
    results = Results()
    for case in cases:
        try:
            with case.prepare():
                reply = implementation.ask(case.request)
        except NoReplyError as error:
            results.fail(case, str(error))
            continue
        if reply.get("unsupported") is True:
            results.leave(case)
            continue
        problem = case.judge(reply)
        if problem is None:
            results.take(case)
        else:
            results.fail(case, problem)
    return results
