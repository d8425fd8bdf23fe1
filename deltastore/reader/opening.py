"""Opening a reader: the stream's newest version, its table, and whether the tensors fit it."""

from __future__ import annotations

from contextlib import nullcontext

from deltastore.errors import NotFoundError
from deltastore.kernels.threads import chosen_threads
from deltastore.layout.memory import LiveTensors
from deltastore.layout.pieces import Layout
from deltastore.log import Log
from deltastore.reader.following import AsyncReader
from deltastore.reader.synced import Pause
from deltastore.replay import read_table
from deltastore.stores.base import Store

__all__ = ["open_reader"]


async def open_reader(
    store: Store,
    tensors: LiveTensors,
    *,
    layout: Layout | None = None,
    pause: Pause | None = None,
    threads: int | None = None,
) -> AsyncReader:
    """A reader that will write versions of the stream in ``store`` into ``tensors``, in place.

    ``tensors``: every tensor of the stream, by checkpoint name, as NumPy arrays or torch tensors of
    exactly its shape and type, all in the memory of the CPU or all in that of one GPU. With ``layout``:
    every parameter of it by the parameter's name; only what these need is fetched, and the first version is
    an anchor's, whatever the parameters hold. ``pause`` makes a context in which the engine leaves its
    weights alone. ``threads``: how many may decode and write at once; None: one for each processor, but at
    most 8. Nothing is fetched but the log and the table until the first ``sync``.

    Raises ``NotFoundError`` (``no_stream``, ``no_version``) and ``InputError`` naming the first tensor or
    parameter that does not fit.
    """
    log = Log(store)
    last = await log.tip()
    newest = await log.manifest_before(last)
    if newest is None:
        raise NotFoundError("no_version", f"{store.url} has no version yet: wait for the trainer's first one")
    table = await read_table(store, newest.table)
    return AsyncReader(
        store, table, tensors, newest, last, pause or nullcontext, chosen_threads(threads), layout
    )
