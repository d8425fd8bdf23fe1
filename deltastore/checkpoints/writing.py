"""Weights as a Hugging Face safetensors checkpoint, written chunk by chunk at the right places."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from deltastore.checkpoints.arrival import arrive, draft_folder, prepare_folder
from deltastore.checkpoints.blocking import blocking
from deltastore.checkpoints.checkpoint import INDEX_NAME
from deltastore.checkpoints.runs import box_runs
from deltastore.checkpoints.shard_files import ShardFiles, write_synced
from deltastore.checkpoints.sharding import index_bytes, plan_shards
from deltastore.errors import InputError
from deltastore.format.table import Array
from deltastore.kernels.grid import Box
from deltastore.layout.weights import Bits, Weights, chunks_of

__all__ = ["SHARD_BYTES", "write_checkpoint"]

SHARD_BYTES: Final = 5_000_000_000
"""Bytes of tensors per file, as Hugging Face writes them."""


async def write_checkpoint(
    weights: Weights,
    directory: str | Path,
    *,
    shard_bytes: int = SHARD_BYTES,
    progress: Callable[[int], None] | None = None,
    overwrite: bool = False,
) -> list[Path]:
    """Write the weights into ``directory``, which is made if it is absent; return the files, durable.

    One file ``model.safetensors``, or ``model-00001-of-0000N.safetensors`` and so on with an index, in table
    order. Memory: one chunk. The files take their names only when all are complete, so a crash leaves none,
    or an index that names missing files. ``progress`` is called with the bytes just written.

    Raises ``InputError("bad_argument")`` for a directory that holds files, unless ``overwrite`` says to
    replace the weights in it, and for whatever the file system refuses.
    """
    if shard_bytes < 1:
        raise InputError("bad_argument", f"shard_bytes is {shard_bytes}; give 1 or more")
    folder = Path(directory)
    shards = plan_shards(weights.table, shard_bytes)
    prepare_folder(folder, overwrite=overwrite)
    names = [shard.name for shard in shards]
    with draft_folder(folder) as draft:
        with ShardFiles(draft, shards) as files:
            await blocking(files.create)
            await _fill(files, weights, progress)
            await blocking(files.close)
        if len(shards) > 1:
            await blocking(functools.partial(write_synced, draft / INDEX_NAME, index_bytes(shards)))
            names.append(INDEX_NAME)
        return await blocking(functools.partial(arrive, draft, folder, names))


async def _fill(files: ShardFiles, weights: Weights, progress: Callable[[int], None] | None) -> None:
    async for number, _, box, bits in chunks_of(weights):
        array = weights.table.arrays[number]
        await blocking(functools.partial(_write_chunk, files, array, box, bits))
        if progress is not None:
            progress(bits.nbytes)


def _write_chunk(files: ShardFiles, array: Array, box: Box, bits: Bits) -> None:
    runs = box_runs(array.shape, box.start[1:], box.size[1:])
    itemsize = array.element.itemsize
    whole = np.ascontiguousarray(bits, dtype=array.element.storage)
    rows = whole.reshape(box.size[0], len(runs.starts), runs.length).view(np.uint8)
    for member in range(box.size[0]):
        name = array.names[box.start[0] + member]
        for run, start in enumerate(runs.starts.tolist()):
            files.write(name, start * itemsize, rows[member, run])
