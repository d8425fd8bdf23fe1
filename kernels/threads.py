"""How many threads kernels may use."""

from __future__ import annotations

import operator
import os
from typing import Final, SupportsIndex

from deltastore.errors import InputError

__all__ = ["checked_threads", "chosen_threads"]

_MOST: Final = 8
"""Memory is full before that: more threads would only take processors from the trainer or the engine."""

_LIMIT: Final = 1024


def chosen_threads(asked: SupportsIndex | None) -> int:
    """``asked``, or by default one for each processor that this process may use, at most 8.

    Raises ``InputError("bad_argument")`` as ``checked_threads``.
    """
    return min(len(os.sched_getaffinity(0)), _MOST) if asked is None else checked_threads(asked)


def checked_threads(asked: SupportsIndex) -> int:
    """``InputError("bad_argument")`` unless it is a whole number from 1 to 1024, NumPy's included."""
    try:
        threads = 0 if isinstance(asked, bool) else operator.index(asked)
    except TypeError:
        threads = 0
    if not 1 <= threads <= _LIMIT:
        problem = f"threads is a whole number from 1 to {_LIMIT}, not {asked!r:.80}"
        raise InputError("bad_argument", problem)
    return threads
