"""A stream with everything in it: anchors, a rollback, epochs, foreign records, raw chunks."""

from __future__ import annotations

import numpy as np
import pytest

from tests.doubles.forging import append_foreign
from tests.doubles.models import cut_table, small_model
from tests.doubles.stores import memory_store
from tests.doubles.training import Trainer

_MADE: dict[tuple[int, int], Trainer] = {}


@pytest.fixture(params=[(4, 0), (16, 2), (1 << 20, 0)], ids=["tiny chunks", "slabs", "whole"])
async def trainer(request: pytest.FixtureRequest) -> Trainer:
    """Versions with the bits of each; 0, 4 and 8 are stored whole, 6 builds on 2. Made once: look only."""
    if request.param not in _MADE:
        _MADE[request.param] = await make(*request.param)
    return _MADE[request.param]


async def make(limit: int, slabs: int) -> Trainer:
    model = small_model()
    trainer = await Trainer.create(
        memory_store(), model, table=cut_table(model, limit, slabs), pack_bytes=300
    )
    await trainer.steps(3, 20)
    await trainer.step(20, anchor=True)
    await trainer.publish()
    trainer.load(2)
    await trainer.reopen()
    await trainer.steps(2, 20)
    await append_foreign(trainer.store)
    trainer.model["model.norm.weight"].view(np.uint16)[...] += 300
    trainer.model["model.layers.1.mlp.up_proj.weight"].view(np.uint16)[...] ^= 0x8001
    await trainer.reopen()
    await trainer.steps(2, 20)
    await trainer.step(metadata={"note": "x"}, step=7)
    return trainer
