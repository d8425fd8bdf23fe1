"""How the C library deals with memory that is free again."""

from __future__ import annotations

import ctypes
from typing import Final

__all__ = ["share_one_heap"]

_ARENA_MAX: Final = -8
"""``M_ARENA_MAX`` of glibc's ``mallopt``."""


def share_one_heap() -> None:
    """From now on what one thread gives back another one gets; glibc only.

    Otherwise it keeps some for each thread that has had any: with many threads, more than all that is in use.
    It is for the whole process, so nothing for a library to do.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, 1)
