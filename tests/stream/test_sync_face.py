"""The sync face: the same calls, each run to its end; and the errors of using it where it cannot be used."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import deltastore
from deltastore.errors import ConflictError, FencedError, InputError, NotFoundError
from tests.doubles.models import bf16, bits, blank, change, differing, small_model, tiny_model
from tests.doubles.stores import memory_store


def test_a_trainer_and_an_engine(tmp_path: Path) -> None:
    url = (tmp_path / "stream").as_uri()
    model = small_model()
    engine = blank(model)
    entered: list[str] = []

    @contextmanager
    def pause() -> Iterator[None]:
        entered.append("paused")
        yield

    with deltastore.create(url, model, metadata={"run": "a"}, label="first") as stream:
        writer = stream.writer(model)
        assert (writer.version, writer.epoch) == (0, 2)
        reader = stream.reader(engine, pause=pause)
        assert reader.poll()
        assert (reader.version, reader.newest, reader.torn) == (None, 0, False)
        assert reader.sync().version == 0
        assert not reader.wait(timeout=0.01, interval=0.002)
        model["model.norm.weight"][0] = bf16(0x1234)
        published = writer.publish(step=5, metadata={"x": None})
        assert (published.version, published.changed, published.kind) == (1, 1, "delta")
        assert reader.wait(timeout=5)
        assert reader.sync().version == reader.version == 1
        assert differing(engine, bits(model)) == []
        assert entered == ["paused", "paused"]
        assert writer.publish(version=7, anchor=True).kind == "anchor"
        assert [record.kind for record in stream.records()] == [
            "birth",
            "epoch",
            "anchor",
            "epoch",
            "delta",
            "anchor",
        ]
        assert stream.newest().version == 7
        assert stream.manifest(1).metadata == {"step": 5, "x": None}
        with pytest.raises(NotFoundError):
            stream.manifest(2)
    with deltastore.open(str(tmp_path / "stream")) as again:
        assert again.newest().version == 7


def test_opening_what_is_not_there_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        deltastore.open(str(tmp_path / "nothing"))
    assert caught.value.code == "no_stream"
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError):
        deltastore.open("ftp://bucket/stream")


def test_closing_twice_is_closing_once() -> None:
    stream = deltastore.create(memory_store(), tiny_model())
    stream.close()
    stream.close()
    with deltastore.create(memory_store(), tiny_model()) as other:
        other.close()


def test_after_closing_everything_says_so() -> None:
    model = tiny_model()
    stream = deltastore.create(memory_store(), model)
    writer, reader = stream.writer(model), stream.reader(blank(model))
    stream.close()
    for call in (writer.publish, reader.sync, reader.poll, stream.newest, stream.records):
        with pytest.raises(InputError, match="closed") as caught:
            call()
        assert caught.value.code == "bad_argument"


def test_two_streams_at_once_do_not_share_a_loop() -> None:
    first, second = tiny_model(1), tiny_model(2)
    with deltastore.create(memory_store(), first) as one, deltastore.create(memory_store(), second) as other:
        writers = one.writer(first), other.writer(second)
        first["norm"][0] = bf16(1)
        assert writers[1].publish().changed == 0
        assert writers[0].publish().changed == 1


async def test_inside_a_loop_it_says_what_to_use_instead() -> None:
    store = memory_store()
    with pytest.raises(InputError, match="AsyncStream"):
        deltastore.create(store, tiny_model())
    await deltastore.AsyncStream.create(store, tiny_model())
    with pytest.raises(InputError, match="AsyncStream"):
        deltastore.open(store)


def test_errors_come_through_as_they_are() -> None:
    store = memory_store()
    model = tiny_model()
    with deltastore.create(store, model) as stream:
        with pytest.raises(ConflictError) as exists:
            deltastore.create(store, model)
        assert exists.value.code == "exists"
        writer = stream.writer(model, label="old")
        with deltastore.open(store) as other:
            other.writer(model, label="new")
        with pytest.raises(FencedError, match="new") as fenced:
            writer.publish()
        copy = pickle.loads(pickle.dumps(fenced.value))
        assert (type(copy), copy.code, str(copy)) == (FencedError, "fenced", str(fenced.value))
        model["norm"][0] = bf16(3)
        with pytest.raises(InputError, match="not the weights of version 0"):
            stream.writer(model, resumes=0)


def test_many_threads_of_work_on_one_stream(tmp_path: Path) -> None:
    """Not shared between threads, but each thread may have a stream of its own over the same store."""
    url = (tmp_path / "stream").as_uri()
    model = tiny_model()
    deltastore.create(url, model).close()

    def follow() -> list[str]:
        engine = blank(model)
        with deltastore.open(url) as stream:
            stream.reader(engine).sync()
        return differing(engine, bits(model))

    async def all_of_them() -> list[list[str]]:
        return await asyncio.gather(*(asyncio.to_thread(follow) for _ in range(4)))

    assert asyncio.run(all_of_them()) == [[], [], [], []]


def test_a_model_that_changes_between_calls() -> None:
    model = tiny_model()
    engine = blank(model)
    random = np.random.default_rng(0)
    with deltastore.create(memory_store(), model) as stream:
        writer, reader = stream.writer(model), stream.reader(engine)
        for version in range(1, 6):
            change(model, random, 5)
            writer.publish()
            assert reader.sync().version == version
            assert differing(engine, bits(model)) == []
