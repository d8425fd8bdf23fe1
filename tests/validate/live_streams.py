"""Streams whose versions live weights are held against, and engines that hold them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deltastore.errors import DeltastoreError
from deltastore.layout.engines.sglang import sglang
from deltastore.layout.engines.vllm import vllm
from deltastore.layout.families import model_of
from deltastore.layout.layout_object import LayoutObject
from deltastore.layout.memory import bits_of
from deltastore.layout.pieces import Layout
from deltastore.layout.slabs import slab_table
from deltastore.stores.base import Store
from deltastore.validate.live import LiveReport, compare_live, open_live
from tests.doubles.models import Bits, Tensors, cut_table, small_model
from tests.doubles.stores import memory_store
from tests.doubles.training import Trainer
from tests.reader.shards import expected, held_bits, params_for
from tests.reader.test_shard_engines import EXPERTS, model_for

from .live_dumps import dump


async def compared(store: Store, path: Path, **options: Any) -> LiveReport:
    with open_live(path) as opened:
        return await compare_live(store, opened, **options)


async def small() -> Trainer:
    """Versions 0 to 3, of which 3 is stored whole, and 4; every chunk changes in each."""
    model = small_model()
    trainer = await Trainer.create(memory_store(), model, table=cut_table(model, 16))
    for step in range(4):
        for tensor in model.values():
            flat = tensor.view(f"<u{tensor.dtype.itemsize}").reshape(-1)
            flat += np.asarray(1, flat.dtype)
        await trainer.publish(anchor=step == 2)
    return trainer


def as_model(trainer: Trainer, version: int) -> Tensors:
    """The tensors of a version."""
    return {
        name: stored.view(trainer.model[name].dtype).copy()
        for name, stored in trainer.history[version].items()
    }


async def refused(trainer: Trainer, path: Path, code: str, **options: Any) -> DeltastoreError:
    with pytest.raises(DeltastoreError) as caught:
        await compared(trainer.store, path, **options)
    assert caught.value.code == code
    return caught.value


def engine_params(layout: Layout, version: Bits) -> dict[str, Any]:
    """The parameters of an engine at a version."""
    params = params_for(layout)
    for name, wanted in expected(layout, version, held_bits(params)).items():
        bits_of(name, params[name])[...] = wanted
    return params


def dump_params(folder: Path, layout: Layout, params: dict[str, Any]) -> Path:
    """As ``deltastore pull`` writes them."""
    dump(folder / "parameters.safetensors", params, {one.name: one.dtype.name for one in layout.params})
    (folder / "layout.json").write_bytes(LayoutObject.of(layout).to_bytes())
    return folder


async def experts(config: dict[str, Any] = EXPERTS) -> Trainer:
    model = model_for(config)
    table = slab_table(model_of(config), list(model_of(config).tensors()), slabs=8, moe="ep")
    trainer = await Trainer.create(memory_store(), model, table=table, pack_bytes=1 << 20)
    for _ in range(2):
        await trainer.step(3000)
    return trainer


ENGINES: list[tuple[Any, dict[str, Any]]] = [
    (vllm, {"tp": 2, "rank": 1}),
    (vllm, {"tp": 4, "ep": 4, "rank": 3, "router": "F32"}),
    (sglang, {"tp": 2, "rank": 0, "experts": "transposed"}),
]
