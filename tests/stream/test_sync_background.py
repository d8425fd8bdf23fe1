"""The sync face of ``publish_async``: one thread, from the first call until the stream is closed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deltastore
from deltastore.errors import DeltastoreError, FencedError, InputError, StoreError
from deltastore.sync import Writer
from tests.doubles.models import Tensors, bf16, bits, blank, change, copy_of, differing, tiny_model
from tests.doubles.stores import WatchedStore, fail_always

from .slow import SlowStore, streaming, uploading


@pytest.fixture
def store() -> SlowStore:
    return SlowStore()


def history_of(store: WatchedStore, versions: int) -> list[dict[str, Any]]:
    """The bits of every version from 1 on, as a reader gets them."""
    engine = blank(tiny_model())
    found = []
    with deltastore.open(store.inner) as stream:
        reader = stream.reader(engine)
        for version in range(1, versions + 1):
            reader.sync(version)
            found.append(bits(engine))
        assert stream.newest().version == versions
    return found


def test_tensors_may_be_overwritten_as_soon_as_it_returns(store: SlowStore) -> None:
    model, random = tiny_model(), np.random.default_rng(0)
    wanted = []
    with streaming(store, model) as (_, writer):
        for number in range(6):
            change(model, random, 2)
            wanted.append(copy_of(model))
            if number % 2 == 0:
                store.go.clear()
            pending = writer.publish_async(step=number, anchor=number == 3)
            for tensor in model.values():
                tensor[...] = bf16(0x4000 + number)
            if number % 2 == 0:
                assert not pending.done
                store.go.set()
            else:
                assert pending.result().version == number + 1
                assert pending.done
    for found, now in zip(history_of(store, 6), wanted, strict=True):
        assert differing(found, now) == []


def test_the_thread_is_there_from_the_first_call_until_the_stream_is_closed(store: SlowStore) -> None:
    model = tiny_model()
    with streaming(store, model) as (stream, writer):
        writer.publish()
        stream.reader(blank(model)).sync()
        assert uploading() == []
        writer.publish_async()
        (thread,) = uploading()
        assert thread.daemon
        writer.publish_async().result()
        writer.publish()
        stream.newest()
        writer.close()
        assert uploading() == [thread]
    assert not thread.is_alive()


def test_uploads_go_on_between_calls(store: SlowStore) -> None:
    model = tiny_model()
    with streaming(store, model) as (_, writer):
        store.go.clear()
        model["norm"][0] = bf16(0x1234)
        pending = writer.publish_async()
        store.go.set()
        while not pending.done:
            threading.Event().wait(0.001)
        assert "log/00000000000000000004.json" in store.keys("put_if_absent")


@pytest.mark.parametrize("close", ["writer", "stream"])
def test_closing_waits(store: SlowStore, close: str) -> None:
    model = tiny_model()
    with streaming(store, model) as (stream, writer):
        store.go.clear()
        model["norm"][0] = bf16(0x1234)
        pending = writer.publish_async()
        threading.Timer(0.05, store.go.set).start()
        (writer if close == "writer" else stream).close()
        assert pending.done
    assert len(history_of(store, 1)) == 1


class TestErrors:
    """Once, to whom it concerns first."""

    def failing(self, store: SlowStore, model: Tensors, writer: Writer) -> deltastore.Pending:
        store.go.clear()
        model["norm"][0] += 1
        pending = writer.publish_async()
        store.before = fail_always("put", prefix="packs/")
        store.go.set()
        return pending

    def test_to_who_asks_for_the_result(self, store: SlowStore) -> None:
        model = tiny_model()
        with streaming(store, model) as (_, writer):
            pending = self.failing(store, model, writer)
            with pytest.raises(StoreError):
                pending.result()
            store.before = None
            assert writer.publish().changed == 1

    @pytest.mark.parametrize("call", ["publish", "publish_async", "close"])
    def test_to_the_next_call(self, store: SlowStore, call: str) -> None:
        model = tiny_model()
        with streaming(store, model) as (_, writer):
            self.failing(store, model, writer)
            with pytest.raises(StoreError):
                getattr(writer, call)()
            store.before = None
            assert writer.publish().changed == 1

    def test_to_who_closes_the_stream(self, store: SlowStore) -> None:
        model = tiny_model()
        with pytest.raises(StoreError), streaming(store, model) as (_, writer):
            self.failing(store, model, writer)
        assert uploading() == []

    def test_fenced_in_the_background(self, store: SlowStore) -> None:
        model = tiny_model()
        with streaming(store, model) as (_, writer):
            store.go.clear()
            model["norm"][0] += 1
            pending = writer.publish_async()
            with deltastore.open(store.inner) as other:
                other.writer(tiny_model(), label="the newer")
            store.go.set()
            for call in (pending.result, writer.publish, writer.publish_async):
                with pytest.raises(FencedError, match="the newer"):
                    call()


class TestThreads:
    """One thread at a time."""

    def test_another_thread_is_refused_and_has_done_nothing(self, store: SlowStore) -> None:
        model = tiny_model()
        with streaming(store, model) as (stream, writer):
            store.go.clear()
            model["norm"][0] = bf16(0x1234)
            pending = writer.publish_async()
            waiting = threading.Thread(target=pending.result)
            waiting.start()
            while not stream._loop._in_use.locked():
                threading.Event().wait(0.001)
            calls: list[Callable[[], object]] = [
                writer.publish,
                writer.publish_async,
                pending.result,
                stream.newest,
                writer.close,
            ]
            for call in calls:
                with pytest.raises(InputError, match="another thread"):
                    call()
            store.go.set()
            waiting.join()
            assert stream.newest().version == 1
            assert writer.publish_async().result().version == 2

    def test_threads_may_take_turns(self, store: SlowStore) -> None:
        model, versions = tiny_model(), list[int]()
        with streaming(store, model) as (_, writer):
            for _ in range(3):
                thread = threading.Thread(
                    target=lambda: versions.append(writer.publish_async().result().version)
                )
                thread.start()
                thread.join()
        assert versions == [1, 2, 3]

    def test_inside_a_loop_it_says_what_to_use_instead(self, store: SlowStore) -> None:
        model = tiny_model()
        with streaming(store, model) as (_, writer):
            writer.publish_async().result()

            async def inside() -> None:
                with pytest.raises(InputError, match="AsyncStream"):
                    writer.publish()

            asyncio.run(inside())
            assert writer.publish().version == 2


def test_a_process_that_forgets_to_close_still_ends(tmp_path: Path) -> None:
    program = f"""
import numpy as np, deltastore
model = {{"w": np.zeros(8, np.uint16)}}
stream = deltastore.create({str(tmp_path / "stream")!r}, model)
writer = stream.writer(model)
model["w"][:] = 7
print(writer.publish_async().result().version)
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_every_error_is_one_of_ours(store: SlowStore) -> None:
    model = tiny_model()
    with streaming(store, model) as (stream, writer):
        pending = writer.publish_async()
        pending.result()
        stream.close()
        for call in (writer.publish, pending.result, writer.close):
            with pytest.raises(DeltastoreError, match="closed"):
                call()
