"""A checkpoint on disk becomes a stream, or the next version of one. Memory: a few chunks and one shard."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deltastore.checkpoints.carried import Carried, carried_files
from deltastore.checkpoints.checkpoint import Checkpoint
from deltastore.checkpoints.reading import CheckpointWeights
from deltastore.errors import InputError
from deltastore.format.records import FileRef, check_metadata
from deltastore.layout.cuts import Experts
from deltastore.layout.cutting import plain_table
from deltastore.layout.grids import Grid, chosen_grid
from deltastore.layout.watched import Progress, WatchedWeights
from deltastore.log import Log
from deltastore.replay import read_table
from deltastore.stores.base import Store
from deltastore.writer.carrying import put_files
from deltastore.writer.committing import Metadata
from deltastore.writer.published import Published
from deltastore.writer.whole import create_stream, publish_weights, refuse_existing

__all__ = ["Created", "create_from_checkpoint", "publish_checkpoint"]

_CONFIG: Final = "config.json"

_NOT_THE_MODEL: Final = frozenset({"unknown_model", "unknown_tensor", "missing_tensor", "wrong_shape"})
"""What is wrong where cuts cannot follow a configuration that is there."""

_PASSES: Final = 2
"""Both ways of publishing read the checkpoint twice: for what is stored, and for its digest."""


@dataclass(frozen=True, slots=True)
class Created:
    """A new stream: its first version, number of tensors, and carried files.

    ``slabs`` of its grid, 0 for the plain one; ``moe``: for which readers experts are cut. ``warnings``: a
    line for each file left out, and one if the grid could not follow the model.
    """

    first: Published
    tensors: int
    files: tuple[FileRef, ...]
    slabs: int
    moe: Experts | None
    warnings: tuple[str, ...]


async def create_from_checkpoint(
    store: Store,
    path: str | Path,
    *,
    slabs: int | None = None,
    moe: Experts | None = None,
    metadata: Metadata | None = None,
    label: str = "",
    progress: Progress | None = None,
) -> Created:
    """Make the store a stream whose version 0 is the safetensors checkpoint at ``path``, stored whole.

    Configuration and tokenizer files beside the weights are carried. ``slabs``, ``moe``: how weights are cut
    for readers of shards, see ``chosen_grid``; by default as the carried configuration says, where it is of a
    known model, and else not. Raises ``ConflictError("exists")`` for a stream with versions, ``InputError``
    for an unusable checkpoint, or slabs that are asked for and cannot be (in all cases nothing is written),
    and ``StoreError``.
    """
    check_metadata(metadata or {})
    await refuse_existing(store)  # before the carried files are in the store
    carried = await asyncio.to_thread(carried_files, path)
    with await asyncio.to_thread(Checkpoint.open, path) as checkpoint:
        if not checkpoint.tensors:
            raise InputError("bad_checkpoint", f"{path} holds no tensor: a stream needs at least one")
        grid, warnings = await asyncio.to_thread(_grid, checkpoint, carried, slabs, moe)
        weights = WatchedWeights(CheckpointWeights(checkpoint, grid.table), progress, passes=_PASSES)
        files = await put_files(store, carried.files)
        first = await create_stream(store, weights, files=files, metadata=metadata, label=label)
    return Created(
        first,
        len(grid.table.places),
        files,
        grid.table.slabs,
        grid.moe,
        (*carried.warnings, *warnings),
    )


def _grid(
    checkpoint: Checkpoint, carried: Carried, slabs: int | None, moe: Experts | None
) -> tuple[Grid, tuple[str, ...]]:
    """The grid, and a warning if it is the plain one though nobody asked for that."""
    config = next((file.path for file in carried.files if file.name == _CONFIG), None)
    try:
        return chosen_grid(checkpoint.tensors, config, slabs=slabs, moe=moe), ()
    except InputError as error:
        if slabs is not None or moe is not None or error.code not in _NOT_THE_MODEL:
            raise
        plain = Grid(plain_table(checkpoint.tensors))
        return plain, (f"plain grid, of which readers of a shard fetch more than they need: {error}",)


async def publish_checkpoint(
    store: Store,
    path: str | Path,
    *,
    version: int | None = None,
    metadata: Metadata | None = None,
    label: str = "",
    progress: Progress | None = None,
) -> Published:
    """Commit the safetensors checkpoint at ``path`` as the next version, as a delta against the newest one.

    Begins a new epoch: whoever was publishing before is fenced. Files beside the checkpoint are not carried;
    ``changed_files`` tells which of them the stream has otherwise. Raises ``InputError`` naming the first
    tensor that is not the stream's, ``ConflictError("version_taken")``, ``NotFoundError("no_stream")``
    (nothing is written then), and ``CorruptError`` when the newest version as stored is damaged.
    """
    check_metadata(metadata or {})
    log = Log(store)
    newest = await log.manifest_before(await log.tip())
    with await asyncio.to_thread(Checkpoint.open, path) as checkpoint:
        table = plain_table(checkpoint.tensors) if newest is None else await read_table(store, newest.table)
        weights = WatchedWeights(CheckpointWeights(checkpoint, table), progress, passes=_PASSES)
        return await publish_weights(store, weights, version=version, metadata=metadata, label=label)
