"""The snapshot detector: what it finds, and when it moves on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltastore.detect.difference import Difference, compare
from deltastore.detect.snapshot import Snapshot
from deltastore.format.table import TensorTable
from deltastore.kernels.reference.apply import resolve, scatter
from deltastore.kernels.reference.held import HeldChunk
from deltastore.kernels.reference.staged import staged_chunks
from deltastore.kernels.rows import EncodedPatches, StagedBits, chunks_of
from deltastore.layout.live import LiveWeights
from deltastore.layout.weights import digest_of
from tests.doubles.models import (
    Tensors,
    bf16,
    bits,
    change,
    copy_of,
    cut_table,
    every_dtype,
    small_model,
    unsigned,
)


async def found(detector: Snapshot | Difference) -> list[EncodedPatches]:
    return [patches async for patches in detector.changes()]


def changes_in(table: TensorTable, old: Tensors, patches: EncodedPatches) -> StagedBits:
    """What the patches write into ``old``; checks what their rows say of it."""
    weights = LiveWeights(table, old)
    assert weights.pieces is not None
    new, differences = resolve(weights.pieces, patches.rows, patches.body)
    assert (differences == patches.rows["difference"]).all()
    changed = [
        int((HeldChunk(weights.pieces, *place).gather()[0][positions] != after).sum())
        for place, (positions, after) in staged_chunks(table.kernels, new)
    ]
    assert changed == patches.changed.tolist()
    return new


def applied(table: TensorTable, model: Tensors, batches: list[EncodedPatches]) -> dict[str, Any]:
    """The bits of ``model`` with the changes written into it."""
    result = copy_of(model)
    pieces = LiveWeights(table, result).pieces
    assert pieces is not None
    for patches in batches:
        scatter(pieces, changes_in(table, model, patches))
    return bits(result)


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return all(first[name].tobytes() == second[name].tobytes() for name in second)


@pytest.mark.parametrize("limit", [1, 5, 16, 1 << 20])
@pytest.mark.parametrize("slabs", [0, 2])
async def test_what_it_finds_turns_the_old_model_into_the_new(limit: int, slabs: int) -> None:
    model = small_model()
    table = cut_table(model, limit, slabs)
    detector = await Snapshot.of(LiveWeights(table, model))
    old = copy_of(model)
    change(model, np.random.default_rng(1), 40)
    changes = await found(detector)
    assert same(applied(table, old, changes), bits(model))
    rows = np.concatenate([one.rows for one in changes])
    found_slabs: Any = table.slabs_of(chunks_of(rows)).tolist()
    places: Any = chunks_of(rows).tolist()
    keys = [(slab, *places[number]) for number, slab in enumerate(found_slabs)]
    assert keys == sorted(set(keys))


@given(st.data())
async def test_any_model_and_any_change(data: st.DataObject) -> None:
    seed = data.draw(st.integers(0, 1 << 16))
    random = np.random.default_rng(seed)
    model = every_dtype()
    table = cut_table(model, data.draw(st.sampled_from([1, 3, 8])))
    detector = await Snapshot.of(LiveWeights(table, model))
    for _ in range(data.draw(st.integers(1, 3))):
        old = copy_of(model)
        for tensor in model.values():
            flat = tensor.view(unsigned(tensor))
            mask = random.random(flat.shape) < data.draw(st.sampled_from([0.0, 0.2, 1.0]))
            flat[mask] = np.frombuffer(random.bytes(flat.nbytes), flat.dtype)[mask]
        changes = await found(detector)
        assert same(applied(table, old, changes), bits(model))
        detector.committed()
        assert await found(detector) == []
        detector.aborted()


@pytest.mark.spec("DS084")
class TestRounds:
    """Only a committed round moves the copy on."""

    async def test_an_aborted_round_is_found_again(self) -> None:
        model = small_model()
        detector = await Snapshot.of(LiveWeights(cut_table(model, 16), model))
        before = await digest_of(detector.published)
        change(model, np.random.default_rng(2), 9)
        first = await found(detector)
        detector.aborted()
        assert await digest_of(detector.published) == before
        second = await found(detector)
        assert [(one.rows.tobytes(), one.body.tobytes()) for one in first] == [
            (one.rows.tobytes(), one.body.tobytes()) for one in second
        ]

    async def test_a_committed_round_is_what_was_found_not_what_came_after(self) -> None:
        model = {"w": bf16([1, 2, 3, 4])}
        table = cut_table(model, 16)
        detector = await Snapshot.of(LiveWeights(table, model))
        model["w"].view(np.uint16)[1] = 20
        assert len(await found(detector)) == 1
        model["w"].view(np.uint16)[1] = 21
        model["w"].view(np.uint16)[2] = 30
        detector.committed()
        (late,) = await found(detector)
        base = {"w": bf16([1, 20, 3, 4])}
        assert applied(table, base, [late])["w"].tolist() == [1, 21, 30, 4]
        assert late.changed.tolist() == [2]

    async def test_a_round_that_was_cut_short_leaves_no_trace(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("deltastore.layout.weights.HELD_BYTES", 64)
        model = small_model()
        detector = await Snapshot.of(LiveWeights(cut_table(model, 4), model))
        change(model, np.random.default_rng(3), 40)
        async for _ in detector.changes():
            break
        detector.aborted()
        changes = await found(detector)
        detector.committed()
        assert len(changes) > 3
        assert await found(detector) == []
        assert await digest_of(detector.published) == await digest_of(
            LiveWeights(detector.published.table, model)
        )

    async def test_retaking_is_starting_over(self) -> None:
        model = small_model()
        detector = await Snapshot.of(LiveWeights(cut_table(model, 16), model))
        change(model, np.random.default_rng(4), 9)
        await detector.retake()
        assert await found(detector) == []

    async def test_committing_twice_is_committing_once(self) -> None:
        model = {"w": bf16([1, 2])}
        detector = await Snapshot.of(LiveWeights(cut_table(model, 16), model))
        model["w"].view(np.uint16)[0] = 9
        await found(detector)
        detector.committed()
        model["w"].view(np.uint16)[0] = 10
        detector.committed()
        assert len(await found(detector)) == 1


async def test_its_copy_is_no_view_of_the_model() -> None:
    model = small_model()
    detector = await Snapshot.of(LiveWeights(cut_table(model, 16), model))
    digest = await digest_of(detector.published)
    change(model, np.random.default_rng(5), 20)
    assert await digest_of(detector.published) == digest


async def test_a_difference_of_two_models() -> None:
    old, new = small_model(), small_model()
    change(new, np.random.default_rng(6), 12)
    table = cut_table(old, 8)
    detector = Difference(LiveWeights(table, new), LiveWeights(table, old))
    changes = await found(detector)
    assert same(applied(table, old, changes), bits(new))
    detector.committed()
    detector.aborted()
    assert [one async for one in compare(LiveWeights(table, old), LiveWeights(table, small_model()))] == []


async def test_bits_are_compared_and_not_numbers() -> None:
    old = {"w": bf16([0x0000, 0x8000, 0x7FC1, 0x7FC1])}
    new = {"w": bf16([0x8000, 0x8000, 0x7FC1, 0xFFC1])}
    table = cut_table(old, 16)
    (one,) = await found(Difference(LiveWeights(table, new), LiveWeights(table, old)))
    assert applied(table, old, [one])["w"].tolist() == [0x8000, 0x8000, 0x7FC1, 0xFFC1]
    assert one.changed.tolist() == [2]


class _Restless:
    """Weights that something else changes as soon as a chunk of them has been read."""

    def __init__(self, live: LiveWeights) -> None:
        self._live = live
        self.table = live.table

    async def read(self, array: int, chunk: int) -> np.ndarray[Any, Any]:
        view = await self._live.read(array, chunk)
        self.last = view
        return view


async def test_weights_that_move_after_a_round_do_not_leak_into_it() -> None:
    model = {"w": np.zeros(4096, dtype=np.uint16)}
    live = _Restless(LiveWeights(cut_table(model, 1024), model))
    detector = await Snapshot.of(live)
    base = {"w": np.zeros(4096, dtype=np.uint16)}
    for start in (np.uint16(1), np.uint16(40_000)):
        model["w"][...] = start
        seen = 0
        async for patches in detector.changes():
            live.last[...] += 1
            new = changes_in(live.table, base, patches)
            assert (new.bits.view(np.uint16) == start).all()
            seen += len(new.positions)
        assert seen == 4096
        detector.committed()
        base["w"][...] = start
    model["w"][...] = 40_001
    (patches,) = await found(detector)
    assert (changes_in(live.table, base, patches).bits.view(np.uint16) == 40_001).all()
