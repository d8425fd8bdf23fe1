"""How many threads kernels use, and who may say so."""

from __future__ import annotations

import os
from typing import Any

import pytest

from deltastore.errors import InputError
from deltastore.kernels.threads import chosen_threads
from deltastore.reader.opening import open_reader
from deltastore.writer.opening import open_writer
from tests.doubles.models import blank, differing, tiny_model
from tests.doubles.stores import memory_store
from tests.doubles.training import Trainer


@pytest.mark.parametrize(("processors", "threads"), [(1, 1), (2, 2), (8, 8), (64, 8)])
def test_the_default_is_a_thread_for_each_processor_but_at_most_eight(
    processors: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)))
    assert chosen_threads(None) == threads


def test_what_is_asked_for_is_taken() -> None:
    assert [chosen_threads(asked) for asked in (1, 3, 200)] == [1, 3, 200]


@pytest.mark.parametrize("asked", [0, -1, True, 1.5, "2"])
async def test_anything_else_is_refused_before_anything_is_done(asked: Any) -> None:
    trainer = await Trainer.create(memory_store(), tiny_model())
    with pytest.raises(InputError, match="threads is a whole number"):
        await open_writer(trainer.store, trainer.model, threads=asked)
    with pytest.raises(InputError, match="threads is a whole number"):
        await open_reader(trainer.store, blank(trainer.model), threads=asked)
    await trainer.step()  # nobody has fenced it


@pytest.mark.parametrize("threads", [1, 2, 5])
async def test_any_number_of_threads_follows_to_the_bit(threads: int) -> None:
    trainer = await Trainer.create(memory_store(), tiny_model())
    trainer.writer = await open_writer(trainer.store, trainer.model, threads=threads)
    tensors = blank(trainer.model)
    reader = await open_reader(trainer.store, tensors, threads=threads)
    for _ in range(3):
        await trainer.step(20)
        await reader.sync()
        assert differing(tensors, trainer.model) == []
