"""The detector that is told what changed, and does not believe all of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deltastore.detect.external import External
from deltastore.detect.marks import PackedBits
from deltastore.errors import CorruptError, InputError
from deltastore.layout.live_parts import LiveParts
from deltastore.layout.parts import Part
from deltastore.stores.memory import MemoryStore
from deltastore.stream import AsyncStream
from tests.detect.oracle import Oracle
from tests.doubles.models import Tensors, bf16, copy_of, cut_table, differing, small_model

NAME = "model.embed_tokens.weight"


def watched(model: Tensors, limit: int = 16) -> tuple[External, Oracle]:
    live = LiveParts(cut_table(model, limit), model)
    detector = External(live, threads=2)
    return detector, Oracle(live, detector)


def flip(model: Tensors, name: str, *places: int) -> None:
    flat = model[name].reshape(-1).view(f"u{model[name].itemsize}")
    flat[list(places)] ^= 0x41


async def test_what_is_marked_is_sent_and_nothing_else() -> None:
    model = small_model()
    detector, oracle = watched(model)
    flip(model, NAME, 3, 50)
    detector.mark({NAME: np.array([3, 50])})
    found = await oracle.publish()
    assert (found.changed, found.sent) == (2, 2)
    assert (await oracle.publish()).sent == 0


async def test_a_change_without_a_mark_is_found_where_its_block_has_none() -> None:
    model = small_model()
    detector, oracle = watched(model)
    flip(model, NAME, 3)
    flip(model, "model.steps", 2)
    flip(model, "model.router.weight", 30)
    detector.mark({NAME: np.array([3])})
    found = await oracle.find()
    assert detector.findings.unexplained == 2
    assert found.changed == 3
    await oracle.commit()


async def test_marks_where_nothing_changed_send_nothing() -> None:
    model = small_model()
    detector, oracle = watched(model)
    detector.mark({name: np.ones(tensor.shape, np.bool_) for name, tensor in model.items() if tensor.size})
    assert (await oracle.publish()).sent == 0


async def test_marks_stay_until_they_are_committed() -> None:
    model = small_model()
    detector, oracle = watched(model)
    flip(model, NAME, 3)
    detector.mark({NAME: np.array([3])})
    await oracle.find()
    await oracle.abort()
    flip(model, NAME, 4)
    detector.mark({NAME: np.array([4])})
    assert (await oracle.find()).changed == 2
    await oracle.commit()


async def test_marks_beside_an_open_round_are_of_the_next() -> None:
    model = small_model()
    detector, oracle = watched(model)
    flip(model, NAME, 3)
    detector.mark({NAME: np.array([3])})
    await oracle.find()
    detector.mark({NAME: np.array([5])})
    oracle.detector.committed()
    oracle.published = oracle._found or oracle.published
    flip(model, NAME, 5)
    assert (await oracle.publish()).sent == 1


async def test_a_round_that_was_closed_half_way_keeps_the_marks() -> None:
    model = small_model()
    detector, oracle = watched(model)
    flip(model, NAME, 3)
    detector.mark({NAME: np.array([3])})
    rounds = detector.changes()
    await anext(rounds)
    with pytest.raises(InputError, match="being published"):
        detector.mark({NAME: np.array([4])})
    await rounds.aclose()
    assert (await oracle.publish()).changed == 1


async def test_a_whole_version_takes_the_marks_with_it() -> None:
    model = small_model()
    detector, oracle = watched(model)
    flip(model, NAME, 3)
    detector.mark({NAME: np.array([3])})
    await oracle.take_whole()
    await oracle.commit()
    flip(model, NAME, 90)  # no mark in this block: it is found all the same
    assert (await oracle.publish()).changed == 1


async def test_weights_that_move_while_they_are_stored_whole_are_refused() -> None:
    model = small_model()
    detector, _ = watched(model)
    await detector.retake()
    whole = detector.whole
    flip(model, NAME, 3)
    array = detector.table.places[NAME][0]
    with pytest.raises(InputError, match="changed while"):
        await whole.read(array, 0)
    with pytest.raises(InputError, match="changed while"):
        async for _ in detector.everything():
            pass


@pytest.mark.spec("DS089")
@pytest.mark.parametrize("dtype", ["u1", "u2", "u4", "u8"])
async def test_old_values_need_not_be_known(dtype: str) -> None:
    """Every width is written absolutely, on any bits, and differences are those of the certificate."""
    random = np.random.default_rng(5)
    model: dict[str, Any] = {"w": random.integers(0, 1 << 8 * np.dtype(dtype).itemsize, 9000, dtype)}
    detector, oracle = watched(model, 1 << 14)
    for _ in range(5):
        places = random.choice(9000, 400, replace=False)
        model["w"][places] = random.integers(0, 1 << 8 * np.dtype(dtype).itemsize, 400, dtype)
        model["w"][places[:100]] = np.iinfo(dtype).max // 2
        detector.mark({"w": places})
        assert (await oracle.publish()).sent == 400


async def test_parts_are_marked_one_by_one() -> None:
    whole = bf16(np.arange(12 * 8).reshape(12, 8))
    table = cut_table({"w": whole}, 16)
    left, right = whole[:, :3].copy(), whole[:, 3:].copy()
    live = LiveParts(table, {"w": (Part(left, (12, 8), (0, 0)), Part(right, (12, 8), (0, 3)))})
    detector = External(live)
    oracle = Oracle(live, detector)
    left.view(np.uint16)[7, 2] ^= 1
    right.view(np.uint16)[11, 4] ^= 1
    mask = np.zeros((12, 5), np.bool_)
    mask[11, 4] = True
    detector.mark({"w": [np.array([7 * 3 + 2]), mask]})
    assert (await oracle.publish()).sent == 2


async def test_a_missing_mark_makes_a_version_that_readers_refuse() -> None:
    """Not one that they apply: the digest of the version is that of the weights."""
    model = small_model()
    async with await AsyncStream.create(MemoryStore("memory://marks"), model) as stream:
        writer = await stream.writer(model, detector="external")
        targets = copy_of(model)
        reader = await stream.reader(targets)
        await reader.sync()
        before = copy_of(targets)
        flip(model, NAME, 3, 4)
        writer.mark({NAME: PackedBits(np.array([8] + [0] * 11, np.uint8))})
        published = await writer.publish()
        assert published.certificate is not None
        assert (published.changed, published.certificate.unexplained) == (1, 0)
        with pytest.raises(CorruptError):
            await reader.sync()
        assert differing(targets, before) == []
        await writer.publish(anchor=True)
        await reader.sync()
        assert differing(targets, model) == []


async def test_marks_are_for_a_writer_that_asked_for_them() -> None:
    model = small_model()
    async with await AsyncStream.create(MemoryStore("memory://asked"), model) as stream:
        writer = await stream.writer(model)
        with pytest.raises(InputError, match="external"):
            writer.mark({NAME: np.array([0])})
        with pytest.raises(InputError, match="without an optimizer"):
            await stream.writer(model, detector="external", optimizer=object())
        with pytest.raises(InputError, match="'guess'"):
            await stream.writer(model, detector="guess")  # type: ignore[arg-type]
        other = await stream.writer(model, detector="external")
        with pytest.raises(InputError, match="external"):
            await other.attach(object())
