"""A store that is slow in the stream's own thread, and a stream over it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import deltastore
from deltastore.stores.base import Data
from deltastore.sync import Stream, Writer
from tests.doubles.models import Tensors
from tests.doubles.stores import WatchedStore, memory_store

__all__ = ["SlowStore", "streaming", "uploading"]


class SlowStore(WatchedStore):
    """Packs wait in the store's thread until ``go`` is set; ``reached``: one waits."""

    def __init__(self) -> None:
        super().__init__(memory_store())
        self.go = threading.Event()
        self.go.set()
        self.reached = threading.Event()

    async def put(self, key: str, data: Data) -> None:
        while key.startswith("packs/") and not self.go.is_set():
            self.reached.set()
            await asyncio.sleep(0.001)
        await super().put(key, data)


def uploading() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "deltastore uploads"]


@contextmanager
def streaming(store: SlowStore, model: Tensors) -> Iterator[tuple[Stream, Writer]]:
    assert uploading() == []
    with deltastore.create(store, model) as stream:
        yield stream, stream.writer(model, pack_bytes=1)
    assert uploading() == []
