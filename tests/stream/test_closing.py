"""Closing a stream that is in use: refused and harmless, or it waits for everybody."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import numpy as np
import pytest

from deltastore.errors import FencedError, InputError
from deltastore.log import Log
from deltastore.stream import AsyncStream
from deltastore.writer.published import Published
from tests.doubles.gates import GatedStore
from tests.doubles.models import bf16, change, copy_of, tiny_model
from tests.doubles.stores import memory_store
from tests.stream.slow import SlowStore, streaming


@pytest.fixture
def store() -> SlowStore:
    return SlowStore()


def blocked(store: SlowStore, call: Callable[[], Published]) -> tuple[threading.Thread, list[Published]]:
    """A call in a thread of its own, that waits for the store."""
    store.go.clear()
    store.reached.clear()
    got: list[Published] = []
    thread = threading.Thread(target=lambda: got.append(call()), daemon=True)
    thread.start()
    store.reached.wait()
    return thread, got


@pytest.mark.parametrize("moved", [False, True])
def test_closing_from_another_thread_is_refused_and_closes_nothing(store: SlowStore, moved: bool) -> None:
    model = tiny_model()
    with streaming(store, model) as (stream, writer):
        if moved:
            writer.publish_async().result()
        model["norm"][0] = bf16(0x1234)
        thread, got = blocked(store, writer.publish)
        with pytest.raises(InputError, match="another thread"):
            stream.close()
        store.go.set()
        thread.join(5)
        assert not thread.is_alive()
        assert got[0].version == 1 + moved
        assert writer.publish().version == 2 + moved


async def test_closing_a_stream_waits_for_all_writers_even_where_one_raises() -> None:
    gate = GatedStore(memory_store())
    model = tiny_model()
    other = copy_of(model)
    stream = await AsyncStream.create(gate, model)
    first = await stream.writer(model)
    gate.shut = True
    change(model, np.random.default_rng(0), 1)
    await first.publish_async()
    second = await stream.writer(other)
    change(other, np.random.default_rng(1), 1)
    await second.publish_async()
    closing = asyncio.create_task(stream.close())
    await gate.reached(2)
    gate.through(1)
    for _ in range(50):
        await asyncio.sleep(0)
    assert not closing.done(), "it left the second one alone"
    gate.open()
    with pytest.raises(FencedError):
        await closing
    assert (await Log(gate).newest_manifest()).version == 1
