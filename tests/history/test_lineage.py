"""Logs that are forged or damaged: every question about a stream ends in a named error."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from deltastore.errors import CorruptError, DeltastoreError
from deltastore.history.comparing import compare_versions
from deltastore.history.counting import stream_stats
from deltastore.history.element import element_history
from deltastore.history.lineage import read_lineage
from deltastore.history.places import ElementName
from deltastore.replay import read_table
from deltastore.stores.base import Store
from tests.doubles.forging import change_record, forge
from tests.doubles.models import Tensors, cut_table, tiny_model
from tests.doubles.stores import contents, copied, flipped, memory_store
from tests.doubles.training import Trainer
from tests.doubles.writers import by_writers
from tests.validate.asking import delta

MODEL: Tensors = {"w": np.arange(40, dtype=np.uint16), "v": np.zeros((3, 4), np.float32)}

QUESTIONS: dict[str, Callable[[Store], Awaitable[Any]]] = {
    "stats": stream_stats,
    "packs": lambda store: stream_stats(store, packs_only=True),
    "diff": lambda store: compare_versions(store, 0, None),
    "why": lambda store: element_history(store, ElementName("w", (3,))),
}

FORGED: dict[str, tuple[dict[str, Any], str]] = {
    "a base that is not there": ({"version": 9, "base": 7, "packs": []}, "DS055"),
    "a version that does not ascend": ({"version": 2, "base": 1}, "DS054"),
    "another table": ({"table": "0" * 64}, "DS060"),
    "another epoch": ({"epoch": 9}, "DS053"),
}
"""What the record of version 3 is made to say."""

_MADE: list[dict[str, bytes]] = []


@pytest.fixture
async def store() -> Store:
    """Versions 0 to 3, the first of which is stored whole."""
    if not _MADE:
        trainer = await Trainer.create(memory_store(), {name: bits.copy() for name, bits in MODEL.items()})
        await trainer.steps(3, 20)
        _MADE.append(await contents(trainer.store))
    return await copied(_MADE[0])


async def slot_of(store: Store, version: int) -> int:
    return (await read_lineage(store)).known[version].slot


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("name", FORGED)
async def test_a_forged_log_is_named(store: Store, name: str, question: str) -> None:
    fields, rule = FORGED[name]
    await forge(store, await slot_of(store, 3), **fields)
    with pytest.raises(CorruptError) as caught:
        await QUESTIONS[question](store)
    assert (caught.value.code, caught.value.rule) == ("bad_chain", rule)


async def asked(store: Store, question: str) -> None:
    """Ask; what is wrong must be a named error."""
    with contextlib.suppress(DeltastoreError):
        await QUESTIONS[question](store)


@pytest.mark.parametrize("question", QUESTIONS)
async def test_any_damage_is_a_named_error_or_harmless(store: Store, question: str) -> None:
    draw = np.random.default_rng(len(question))
    for key, data in (await contents(store)).items():
        await store.put(key, flipped(data, int(draw.integers(len(data))), int(draw.integers(8))))
        await asked(store, question)
        await store.delete(key)
        await asked(store, question)
        await store.put(key, data)


async def test_a_record_that_changes_meanwhile_is_named(store: Store) -> None:
    lineage = await read_lineage(store)
    await change_record(store, lineage.known[2].slot, time=77)
    with pytest.raises(CorruptError, match="changed"):
        await lineage.record(2)


async def test_versions_with_what_they_build_on(store: Store) -> None:
    lineage = await read_lineage(store, (2,), 2)
    assert (list(lineage.known), lineage.chosen, lineage.ends[1]) == ([0, 1, 2], (2,), 3)
    (family,) = lineage.families()
    assert (family.anchor, family.bases) == (0, {1: 0, 2: 1})
    assert lineage.path(1).bases == {1: 0}


@pytest.mark.spec("DS045")
async def test_an_element_of_two_writers_is_refused() -> None:
    """Whoever replays refuses what a reader refuses."""
    model = tiny_model()
    trainer = await Trainer.create(memory_store(), model, table=cut_table(model, 16))
    await trainer.step(50)
    record = await delta(trainer, 1)
    table = await read_table(trainer.store, record.table)
    old, new = trainer.history[0], trainer.history[1]
    owners: list[Any] = [lambda at: at % 2 == 0, lambda at: (at % 2 == 1) | (at == at[0])]
    await by_writers(trainer.store, table, record, old, new, owners)
    elements = [
        ElementName(name, tuple(int(at) for at in np.argwhere(old[name] != new[name])[0])) for name in old
    ]
    for question in (QUESTIONS["stats"], QUESTIONS["diff"], partial(first_refused, elements)):
        with pytest.raises(CorruptError) as caught:
            await question(trainer.store)
        assert (caught.value.code, caught.value.rule) == ("bad_patch", "DS045")


async def first_refused(elements: list[ElementName], store: Store) -> None:
    for element in elements:
        await element_history(store, element)
