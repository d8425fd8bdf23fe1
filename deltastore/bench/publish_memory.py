"""What a publish takes of memory, measured in a process that does nothing else.

python -m deltastore.bench.publish_memory URL NBYTES PACK_BYTES UPLOADS

prints the bytes of each rise as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Final

from deltastore.bench.figure import Figure
from deltastore.bench.noise import Noise
from deltastore.bench.place import below
from deltastore.bench.resident import measured_rise
from deltastore.errors import StoreError
from deltastore.stream import AsyncStream

__all__ = ["measure_memory"]

_BESIDES: Final = 64_000_000
"""Bytes that a publish may take beside its packs in flight."""


async def measure_memory(place: str, nbytes: int, pack_bytes: int, uploads: int) -> list[Figure]:
    """The rise during a delta of one element a tensor, and of one of all elements."""
    numbers = map(str, (nbytes, pack_bytes, uploads))
    program = [sys.executable, "-m", __name__, below(place, "memory"), *numbers]
    process = await asyncio.create_subprocess_exec(
        *program, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, said = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        last = said.decode(errors="replace").strip().rpartition("\n")[2]
        raise StoreError("store_failed", f"a publish in a process of its own failed: {last}")
    allowed = pack_bytes * uploads + _BESIDES
    return [
        Figure(
            f"memory of a {name} publish",
            rise / 1e6,
            "MB",
            rise / allowed,
            f"{allowed / 1e6:.0f} MB",
            target=1.0,
            at_most=True,
        )
        for name, rise in json.loads(out).items()
    ]


async def _measure(url: str, nbytes: int, pack_bytes: int, uploads: int) -> dict[str, int]:
    model = Noise(nbytes)
    async with await AsyncStream.create(url, model.tensors) as stream:
        writer = await stream.writer(model.tensors, pack_bytes=pack_bytes, uploads=uploads)
        model.change_little()
        with measured_rise() as small:
            await writer.publish()
        model.change_all()
        with measured_rise() as large:
            await writer.publish()
    return {"small": small.nbytes, "large": large.nbytes}


if __name__ == "__main__":
    url, *numbers = sys.argv[1:]
    sys.stdout.write(json.dumps(asyncio.run(_measure(url, *map(int, numbers)))))
