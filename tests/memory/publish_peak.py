"""Publish a version in this process and print the rise of its memory meanwhile, in bytes (Linux, glibc).

python publish_peak.py NBYTES PACK_BYTES UPLOADS small|dense|casting

The version is a delta on a model with ``NBYTES`` of elements: all of them change, to random bits (``dense``),
also where tensors are F32 that stand for BF16 (``casting``), or one of each tensor (``small``).
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

from deltastore.stores.base import Data
from deltastore.stores.memory import MemoryStore
from deltastore.stream import AsyncStream

Tensors = dict[str, np.ndarray[Any, Any]]

_KEPT_BYTES = 1 << 20
_SECONDS_PER_PUT = 0.03
_SHAPE = (1024, 4096)
_THREADS = 2
"""Each that encodes takes up to 16 MiB of its own, on a machine of any size."""


class Sink(MemoryStore):
    """Keeps small objects only, and is slow: as many large ones wait in memory as may."""

    async def put(self, key: str, data: Data) -> None:
        if len(data) < _KEPT_BYTES:
            await super().put(key, data)
        else:
            await asyncio.sleep(_SECONDS_PER_PUT)


def status(field: str) -> int:
    """A line of the kernel's account of this process, in bytes."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(rf"^{field}:\s+(\d+) kB$", text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"/proc/self/status has no {field}")
    return int(found[1]) * 1024


def forget_peak() -> int:
    """What comes from now on is the peak; returns what is in memory now, with nothing that is free."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return status("VmRSS")


def model_of(nbytes: int, casting: bool) -> Tensors:
    """Two-byte elements in tensors of 8 MiB; four-byte ones in twice as much for ``casting``."""
    count = nbytes // (2 * _SHAPE[0] * _SHAPE[1])
    model: Tensors = {
        f"layers.{number}.weight": np.zeros(_SHAPE, np.float32 if casting else np.uint16)
        for number in range(count)
    }
    change(model, everywhere=True)
    return model


def change(model: Tensors, *, everywhere: bool) -> None:
    """New random elements everywhere, or one in each tensor; takes no memory but for a row."""
    random = np.random.default_rng(0)
    for tensor in model.values():
        for row in tensor if everywhere else tensor[:1, :1]:
            if tensor.dtype == np.float32:
                row += random.random(row.shape, np.float32)
            else:
                row += random.integers(1, 1 << 16, row.shape, np.uint16)


async def rise_of_publish(nbytes: int, pack_bytes: int, uploads: int, what: str) -> int:
    """The peak during the publish above what the open writer took."""
    casting = what == "casting"
    model = model_of(nbytes, casting)
    store = Sink("memory://sink")
    async with await AsyncStream.create(store, model, cast="BF16" if casting else None) as stream:
        writer = await stream.writer(
            model, cast=casting, pack_bytes=pack_bytes, uploads=uploads, threads=_THREADS
        )
        change(model, everywhere=what != "small")
        before = forget_peak()
        published = await writer.publish()
        rise = status("VmHWM") - before
    if what != "small" and published.nbytes < 0.9 * nbytes:
        raise SystemExit(f"that was no dense delta: {published}")
    return rise


if __name__ == "__main__":
    *numbers, what = sys.argv[1:]
    nbytes, pack_bytes, uploads = map(int, numbers)
    print(json.dumps({"rise": asyncio.run(rise_of_publish(nbytes, pack_bytes, uploads, what))}))
