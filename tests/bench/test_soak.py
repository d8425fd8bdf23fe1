"""The soak: that it runs clean, and that it would see what is wrong."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deltastore import AsyncStream
from deltastore.bench.soak import run
from deltastore.bench.soak.__main__ import main
from deltastore.bench.soak.engine import Engine
from deltastore.bench.soak.model import change, copied, fingerprint, foreign, new_model
from deltastore.bench.soak.tally import Tally
from deltastore.bench.soak.truth import TOKEN, Truth
from deltastore.stores.memory import MEMORY_STORES, MemoryStore
from tests.doubles.stores import memory_store


class TestModel:
    def test_it_is_the_same_for_the_same_seed(self) -> None:
        assert fingerprint(new_model(3)) == fingerprint(new_model(3)) != fingerprint(new_model(4))

    def test_a_fingerprint_is_of_bits_and_names(self) -> None:
        model = {"a": np.zeros(3, np.float32), "b": np.zeros(3, np.float32)}
        minus = {**model, "a": np.array([0, -0.0, 0], np.float32)}
        other = {"a": model["a"], "c": model["b"]}
        assert len({fingerprint(one) for one in (model, minus, other)}) == 3

    def test_changes_are_drawn_from_the_dice(self) -> None:
        first, second = new_model(0), new_model(0)
        change(first, random.Random(5))
        change(second, random.Random(5))
        assert fingerprint(first) == fingerprint(second) != fingerprint(new_model(0))
        assert all((foreign(first)[name] != first[name]).all() for name in first)


class TestTruth:
    @pytest.fixture
    async def stream(self, tally: Tally) -> tuple[MemoryStore, Truth, dict[str, Any]]:
        store, model = memory_store(), new_model(0)
        truth = Truth(store, tally)
        await AsyncStream.create(store, model, metadata={TOKEN: truth.note(model)})
        return store, truth, model

    @pytest.fixture
    def tally(self) -> Tally:
        return Tally()

    async def test_what_is_right_is_no_problem(self, stream: Any, tally: Tally) -> None:
        store, truth, model = stream
        writer = await AsyncStream(store).writer(model)
        change(model, random.Random(0))
        token = truth.note(model)
        published = await writer.publish(metadata={TOKEN: token})
        await truth.published(published.version, token)
        await truth.compare(1, model, "somebody")
        await truth.compare(0, new_model(0), "somebody")
        assert tally.problems == []
        assert (tally.versions, tally.compared, tally.published) == (2, 2, 1)

    async def test_other_bits(self, stream: Any, tally: Tally) -> None:
        _, truth, model = stream
        model["codes"][3, 3] ^= 1
        await truth.compare(0, model, "engine 7")
        assert tally.problems == ["engine 7 says to hold version 0, but its bits are others"]

    async def test_a_version_that_is_not_there(self, stream: Any, tally: Tally) -> None:
        _, truth, model = stream
        await truth.compare(4, model, "engine 7")
        await truth.published(4, "0")
        assert [problem.split(",")[0] for problem in tally.problems] == [
            "engine 7 says to hold version 4",
            "version 4 was reported as committed",
        ]

    async def test_a_version_that_nobody_published(self, stream: Any, tally: Tally) -> None:
        store, truth, model = stream
        writer = await AsyncStream(store).writer(model)
        await writer.publish(metadata={TOKEN: "0"})
        await writer.publish()
        await truth.learn()
        assert [problem.partition(",")[0] for problem in tally.problems] == [
            "version 1 has the token 0",
            "version 2 has the token None",
        ]

    async def test_a_version_of_a_fenced_epoch(self, stream: Any, tally: Tally) -> None:
        store, truth, model = stream
        await truth.learn()
        truth._epoch += 1
        writer = await AsyncStream(store).writer(model)
        truth._epoch += 1
        await writer.publish(metadata={TOKEN: truth.note(model)})
        truth._last, truth._epoch = None, 9
        truth.tokens.clear()
        await truth.learn()
        assert any("which epoch 9 fences" in problem for problem in tally.problems)


async def test_a_second_of_everything() -> None:
    tally = await run.soak("memory://soaked", seconds=1.0, seed=1, episode_seconds=0.5)
    assert tally.problems == []
    assert tally.streams >= 1
    assert tally.compared > 0
    assert tally.faults.total() > 0
    assert tally.requests["put_if_absent"] >= tally.records - tally.streams
    assert not any(name.startswith("soaked/") for name in MEMORY_STORES)


async def test_an_engine_with_wrong_bits_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    true = Engine.settle

    async def wrong(engine: Engine, stream: AsyncStream) -> None:
        await true(engine, stream)
        engine.tensors["codes"][0, 0] ^= 1
        await engine._truth.compare(max(engine._truth.tokens), engine.tensors, "a wrong engine")

    monkeypatch.setattr(Engine, "settle", wrong)
    tally = await run.soak("memory://soaked", seconds=60.0, seed=1, episode_seconds=0.1)
    assert tally.streams == 1
    assert set(tally.problems) == {
        f"a wrong engine says to hold version {tally.versions - 1}, but its bits are others"
    }


def test_the_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "--minutes", "0.002", "--seed", "4"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("seed 4\n1 streams, ")
    assert "syncs      " in said.out
    assert "1 streams" in said.err
    assert list(tmp_path.iterdir()) == []


def test_a_problem_is_reported_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def soak(*_: object, **__: object) -> Tally:
        return replace(Tally(), problems=["engine 1 says to hold version 3, but its bits are others"])

    monkeypatch.setattr("deltastore.bench.soak.__main__.soak", soak)
    assert main(["memory://soaked"]) == 1
    assert "PROBLEM    engine 1 says" in capsys.readouterr().out


def test_models_are_copied() -> None:
    model = new_model(0)
    copy = copied(model)
    copy["codes"][0, 0] ^= 1
    assert fingerprint(copy) != fingerprint(model)
