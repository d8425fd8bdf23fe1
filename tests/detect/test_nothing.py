"""Weights of zero bits: what turns them into a model is the whole model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from deltastore.detect.difference import Difference
from deltastore.detect.nothing import NoWeights
from deltastore.kernels.cpu import apply
from deltastore.layout.live import LiveWeights
from deltastore.layout.weights import chunks_of, digest_of
from tests.doubles.models import Tensors, blank, cut_table, differing, every_dtype, small_model


@pytest.mark.parametrize("make", [small_model, every_dtype])
@pytest.mark.parametrize("limit", [3, 16, 1 << 20])
async def test_every_element_is_zero_and_weighs_nothing(make: Callable[[], Tensors], limit: int) -> None:
    model = make()
    table = cut_table(model, limit)
    nothing = NoWeights(table)
    assert nothing.table is table
    async for array, chunk, box, bits in chunks_of(nothing):
        assert bits.shape == box.size
        assert bits.dtype == table.arrays[array].element.storage
        assert not bits.any()
        bits[...] = 1
        assert not (await nothing.read(array, chunk)).any(), "every read is of its own memory"
    zeros = {name: np.zeros(tensor.shape, tensor.dtype) for name, tensor in model.items()}
    assert await digest_of(nothing) == await digest_of(LiveWeights(table, zeros)) == 0
    for number, held in enumerate(table.arrays):
        for member in range(held.count):
            for piece in nothing.pieces.of(number, member):
                assert not any(piece.view.strides), "one zero stands for all"


@pytest.mark.parametrize("make", [small_model, every_dtype])
@pytest.mark.parametrize("limit", [3, 16, 1 << 20])
async def test_a_model_is_its_difference_from_nothing(make: Callable[[], Tensors], limit: int) -> None:
    """Negative zeros and NaN are changes like any other; zeros are none, and take no bytes."""
    model = make()
    table = cut_table(model, limit)
    live = LiveWeights(table, model)
    difference = Difference(live, NoWeights(table))
    built = {name: np.zeros(tensor.shape, tensor.dtype) for name, tensor in blank(model).items()}
    target = LiveWeights(table, built)
    assert target.pieces is not None
    total = 0
    async for patches in difference.changes():
        total += int(patches.rows["difference"].sum(dtype=np.uint64))
        apply(target.pieces, patches.rows, patches.body)
    assert differing(built, model) == []
    assert total % (1 << 64) == await digest_of(live)
