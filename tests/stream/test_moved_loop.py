"""A stream's event loop gets a thread of its own only when nothing stands against it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import deltastore
from deltastore.errors import InputError
from deltastore.stores.base import Data
from deltastore.stores.wrapped import WrappedStore
from tests.doubles.stores import memory_store


class Gate(WrappedStore):
    """A store whose packs wait until it is opened."""

    def __init__(self) -> None:
        super().__init__(memory_store())
        self.reached = threading.Event()
        self.open = threading.Event()

    async def put(self, key: str, data: Data) -> None:
        if key.startswith("packs/"):
            self.reached.set()
            assert self.open.wait(30)
        await super().put(key, data)


@pytest.fixture
def gate() -> Iterator[Gate]:
    store = Gate()
    yield store
    store.open.set()


def test_a_refused_first_publish_async_changes_nothing(gate: Gate) -> None:
    model = {"w": np.zeros(8, np.uint16)}
    with deltastore.create(gate, model) as stream:
        writer = stream.writer(model)
        model["w"][0] = 1
        busy = threading.Thread(target=writer.publish)
        busy.start()
        assert gate.reached.wait(30)
        before = threading.active_count()
        with pytest.raises(InputError, match="another thread is using this stream"):
            writer.publish_async()
        assert threading.active_count() == before
        gate.open.set()
        busy.join(30)
        assert not busy.is_alive()
        model["w"][1] = 2
        assert writer.publish().version == 2
        assert writer.publish_async().result().version == 3


def test_after_close_it_is_an_error_that_says_so() -> None:
    model = {"w": np.zeros(8, np.uint16)}
    stream = deltastore.create(memory_store(), model)
    writer = stream.writer(model)
    stream.close()
    with pytest.raises(InputError, match="the stream is closed"):
        writer.publish_async()


@pytest.mark.parametrize("moved", [False, True])
def test_a_forked_child_is_told_to_open_its_own(moved: bool) -> None:
    model = {"w": np.zeros(8, np.uint16)}
    with deltastore.create(memory_store(), model) as stream:
        writer = stream.writer(model)
        if moved:
            writer.publish_async().result()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                writer.publish()
            except InputError as error:
                status = 0 if "before a fork" in str(error) else 2
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert writer.publish().version == (2 if moved else 1)
