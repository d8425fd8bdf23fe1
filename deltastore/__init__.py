"""A versioned store of sparse BF16 weight deltas for online RL: a trainer publishes, rollout engines follow.

The public names below are loaded when they are first used, so that ``import deltastore`` costs nothing: no
torch, no tensorstore, no NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from deltastore.detect.marks import PackedBits
    from deltastore.errors import (
        ConflictError,
        CorruptError,
        DeltastoreError,
        FencedError,
        InputError,
        NotFoundError,
        StoreError,
        TornError,
        UnsupportedError,
        UsageError,
    )
    from deltastore.layout.parts import Part, flat_parts
    from deltastore.reader.following import AsyncReader, Synced
    from deltastore.stream import AsyncStream
    from deltastore.sync import Pending, Reader, Stream, Writer, create, open
    from deltastore.writer.background import Publishing
    from deltastore.writer.gathering import new_run
    from deltastore.writer.published import Published
    from deltastore.writer.publishing import AsyncWriter

__version__ = "0.1.0"

__all__ = [
    "AsyncReader",
    "AsyncStream",
    "AsyncWriter",
    "ConflictError",
    "CorruptError",
    "DeltastoreError",
    "FencedError",
    "InputError",
    "NotFoundError",
    "PackedBits",
    "Part",
    "Pending",
    "Published",
    "Publishing",
    "Reader",
    "StoreError",
    "Stream",
    "Synced",
    "TornError",
    "UnsupportedError",
    "UsageError",
    "Writer",
    "__version__",
    "create",
    "flat_parts",
    "new_run",
    "open",
]

_HOMES: Final[dict[str, str]] = {
    "AsyncReader": "deltastore.reader.following",
    "AsyncStream": "deltastore.stream",
    "AsyncWriter": "deltastore.writer.publishing",
    "PackedBits": "deltastore.detect.marks",
    "Part": "deltastore.layout.parts",
    "Pending": "deltastore.sync",
    "Published": "deltastore.writer.published",
    "Publishing": "deltastore.writer.background",
    "Reader": "deltastore.sync",
    "Stream": "deltastore.sync",
    "Synced": "deltastore.reader.following",
    "Writer": "deltastore.sync",
    "create": "deltastore.sync",
    "flat_parts": "deltastore.layout.parts",
    "new_run": "deltastore.writer.gathering",
    "open": "deltastore.sync",
    "ConflictError": "deltastore.errors",
    "CorruptError": "deltastore.errors",
    "DeltastoreError": "deltastore.errors",
    "FencedError": "deltastore.errors",
    "InputError": "deltastore.errors",
    "NotFoundError": "deltastore.errors",
    "StoreError": "deltastore.errors",
    "TornError": "deltastore.errors",
    "UnsupportedError": "deltastore.errors",
    "UsageError": "deltastore.errors",
}
"""Every public name and the module that defines it."""


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
