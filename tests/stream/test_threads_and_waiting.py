"""Two threads on one stream are refused before anything is done; opening a stream can wait for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import deltastore
from deltastore.errors import InputError, NotFoundError
from deltastore.format.records import BirthRecord
from deltastore.log import Log, new_nonce
from deltastore.stream import AsyncStream
from tests.doubles.models import blank, small_model, tiny_model
from tests.doubles.stores import memory_store


def test_a_refused_call_is_not_done_later() -> None:
    model = tiny_model()
    with deltastore.create(memory_store(), model) as stream:
        writer = stream.writer(model)
        inside, leave = threading.Event(), threading.Event()

        @contextmanager
        def pause() -> Iterator[None]:
            inside.set()
            leave.wait()
            yield

        reader = stream.reader(blank(model), pause=pause)
        holding = threading.Thread(target=reader.sync)
        holding.start()
        inside.wait()
        for _ in range(20):
            with pytest.raises(InputError, match="another thread"):
                writer.publish()
        leave.set()
        holding.join()
        assert stream.newest().version == 0
        assert writer.publish().version == 1


async def test_opening_waits_for_the_first_version() -> None:
    store, model = memory_store(), small_model()
    opening = asyncio.create_task(AsyncStream.open(store, wait=30))
    await asyncio.sleep(0.15)
    await Log(store).append(BirthRecord, None, epoch=0, stream=new_nonce())
    await asyncio.sleep(0.15)
    assert not opening.done(), "a stream without a version is not what was waited for"
    await AsyncStream.create(store, model)
    stream = await opening
    assert (await stream.newest()).version == 0


async def test_waiting_in_vain_says_what_is_missing() -> None:
    store = memory_store()
    with pytest.raises(NotFoundError) as caught:
        await AsyncStream.open(store, wait=0.05)
    assert caught.value.code == "no_stream"
    await Log(store).append(BirthRecord, None, epoch=0, stream=new_nonce())
    with pytest.raises(NotFoundError) as caught:
        await AsyncStream.open(store, wait=0.05)
    assert caught.value.code == "no_version"
    await AsyncStream.open(store)


def test_a_path_object_is_a_store(tmp_path: Path) -> None:
    with deltastore.create(tmp_path / "stream", tiny_model()) as stream:
        assert stream.newest().version == 0
    with deltastore.open(tmp_path / "stream") as stream:
        assert stream.newest().version == 0


@pytest.mark.parametrize("url", [None, 3, b"/x"])
def test_anything_else_is_no_store(url: Any) -> None:
    with pytest.raises(InputError) as caught:
        deltastore.open(url)
    assert caught.value.code == "bad_url"


@pytest.mark.parametrize("tensors", [[("w", np.zeros(3))], torch.nn.Linear(2, 2), {3: np.zeros(3)}, None])
def test_tensors_are_a_mapping_of_names(tensors: Any) -> None:
    with pytest.raises(InputError) as caught:
        deltastore.create(memory_store(), tensors)
    assert caught.value.code == "bad_argument"
    with deltastore.create(memory_store(), tiny_model()) as stream:
        for use in (stream.writer, stream.reader):
            with pytest.raises(InputError) as caught:
                use(tensors)
            assert caught.value.code == "bad_argument"


def test_an_unknown_cast_is_refused_even_where_nothing_would_be_cast() -> None:
    with pytest.raises(InputError, match="BF17"):
        deltastore.create(memory_store(), tiny_model(), cast="BF17")


@pytest.mark.parametrize("step", [np.int64(7), torch.tensor(7), np.uint8(7), 7])
def test_a_step_is_any_integer(step: Any) -> None:
    model = tiny_model()
    with deltastore.create(memory_store(), model) as stream:
        stream.writer(model).publish(step=step)
        assert stream.newest().metadata == {"step": 7}


@pytest.mark.parametrize("step", ["7", 7.0, None])
def test_a_step_is_nothing_else(step: Any) -> None:
    model = tiny_model()
    with deltastore.create(memory_store(), model) as stream:
        writer = stream.writer(model)
        if step is None:
            assert writer.publish(step=None).version == 1
            return
        with pytest.raises(InputError, match="a step is an integer"):
            writer.publish(step=step)


@pytest.mark.parametrize("version", ["latest", 1.0, True])
def test_a_version_to_sync_is_an_integer(version: Any) -> None:
    model = tiny_model()
    with deltastore.create(memory_store(), model) as stream:
        reader = stream.reader(blank(model))
        with pytest.raises(InputError, match="a version is an integer"):
            reader.sync(version)


@pytest.mark.parametrize(("value", "words"), [(0.5, "write it as text"), (2**60, "write it as text")])
def test_metadata_that_has_no_one_spelling(value: Any, words: str) -> None:
    model = tiny_model()
    with deltastore.create(memory_store(), model) as stream, pytest.raises(InputError, match=words):
        stream.writer(model).publish(metadata={"loss": value})
