"""A program: write a model to a store and read it back, and print how far memory rose, as JSON, in MiB.

    python -m tests.anchors.peak_memory anchor FOLDER
    python -m tests.anchors.peak_memory checkpoint FOLDER

The model has 512 MiB. Run by the memory tests in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from deltastore.anchors import AnchorWeights, write_anchor
from deltastore.anchors.portion import AnchorPortion
from deltastore.checkpoints import Checkpoint, CheckpointWeights, write_checkpoint
from deltastore.format.dtypes import DTYPES
from deltastore.format.table import TensorSpec
from deltastore.layout.batches import chunks_in_order
from deltastore.layout.cutting import plain_table
from deltastore.layout.weights import Bits, Weights, chunks_of, digest_of
from deltastore.stores.local import LocalStore

MEBIBYTE = 1 << 20


class CountedWeights:
    """512 MiB that are made chunk by chunk: every element of a chunk is the chunk's number."""

    table = plain_table(
        [TensorSpec(f"layers.{layer}.weight", (4096, 1024), DTYPES["BF16"]) for layer in range(48)]
        + [TensorSpec("embed.weight", (65536, 1024), DTYPES["BF16"])]
    )

    async def read(self, array: int, chunk: int) -> Bits:
        box = self.table.arrays[array].grid.box(chunk)
        return np.full(box.size, chunk, dtype="<u2")


def memory(field: str) -> int:
    """``VmRSS`` (now) or ``VmHWM`` (the most so far) of this process, in MiB."""
    match = re.search(rf"^{field}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    if match is None:
        raise RuntimeError(f"/proc/self/status has no {field}")
    return int(match[1]) // 1024


async def count(weights: Weights) -> int:
    return sum([bits.nbytes async for _, _, _, bits in chunks_of(weights)])


async def through_anchor(folder: Path, rise: Callable[[], int]) -> dict[str, int]:
    store, weights = LocalStore(folder), CountedWeights()
    ref = await write_anchor(store, 1, weights)
    written = rise()
    anchor = await AnchorWeights.open(store, 1, ref, weights.table)
    same = await digest_of(anchor) == await digest_of(weights)
    found = {"nbytes": await count(anchor), "written": written, "read": rise(), "same": same}
    portion = await AnchorPortion.open(store, 1, ref, weights.table)
    objects = portion.fetch(chunks_in_order(weights.table)[::2], ahead=3)
    nbytes = sum([sum(bits.nbytes for _, _, bits in one.chunks) async for one in objects])
    return {**found, "part_nbytes": nbytes, "part": rise()}


async def through_checkpoint(folder: Path, rise: Callable[[], int]) -> dict[str, int]:
    weights = CountedWeights()
    await write_checkpoint(weights, folder, shard_bytes=100 * MEBIBYTE)
    written = rise()
    with Checkpoint.open(folder) as checkpoint:
        found = CheckpointWeights(checkpoint, weights.table)
        same = await digest_of(found) == await digest_of(weights)
        return {"nbytes": await count(found), "written": written, "read": rise(), "same": same}


def main(what: str, folder: Path) -> None:
    before = memory("VmRSS")

    def rise() -> int:
        return memory("VmHWM") - before

    through = {"anchor": through_anchor, "checkpoint": through_checkpoint}[what]
    print(json.dumps(asyncio.run(through(folder, rise))))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
