"""Batches: every chunk once, in pack order, and of about the size that was asked for."""

from __future__ import annotations

import numpy as np
import pytest

from deltastore.kernels.rows import chunk_list
from deltastore.layout.batches import HELD_BYTES, READ_BYTES, Batches, chunk_batches, chunks_in_order
from deltastore.layout.live import LiveWeights
from deltastore.layout.watched import WatchedWeights
from deltastore.layout.weights import batches_of
from tests.doubles.models import cut_table, small_model


@pytest.mark.parametrize("nbytes", [1, 40, 64, 200, 1 << 20])
@pytest.mark.parametrize("slabs", [0, 2])
def test_every_chunk_once_in_pack_order(nbytes: int, slabs: int) -> None:
    table = cut_table(small_model(), 9, slabs)
    batches = list(chunk_batches(table, chunks_in_order(table), nbytes))
    order = table.chunk_order()
    listed = [chunk for batch in batches for chunk in batch.tolist()]
    assert listed == chunk_list(order[:, 1], order[:, 2]).tolist()
    for batch in batches:
        sizes = [
            table.arrays[array].grid.box(chunk).elements * table.arrays[array].element.itemsize
            for array, chunk in batch.tolist()
        ]
        assert len(batch) == 1 or sum(sizes) <= nbytes
    if nbytes == 1 << 20:
        assert len(batches) == 1


def test_weights_that_are_read_come_in_smaller_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    assert READ_BYTES < HELD_BYTES
    monkeypatch.setattr("deltastore.layout.weights.READ_BYTES", 1)
    model = small_model()
    live = LiveWeights(cut_table(model, 9), model)
    assert len(list(batches_of(live, live))) == 1
    assert len(list(batches_of(live, WatchedWeights(live, None)))) == len(live.table.chunk_order())


def test_batches_grow_while_little_is_made_and_shrink_at_once() -> None:
    table = cut_table({"w": np.zeros(64 * 40, np.uint16)}, 8)
    batches = Batches(table, chunks_in_order(table), 64, 256)
    sizes = []
    for number, batch in enumerate(batches):
        sizes.append(len(batch) * 16)
        batches.made(1000 if number == 5 else 0)
    assert sizes[:9] == [64, 128, 256, 256, 256, 256, 64, 128, 256]
    assert sum(sizes) == 64 * 40 * 2
