"""``compare``: whether live parameters are those of a version, and so whether the layout is the right one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deltastore.layout.engines.vllm import vllm
from deltastore.layout.families import model_of
from deltastore.layout.memory import bits_of
from deltastore.layout.slabs import slab_table
from deltastore.reader.opening import open_reader
from tests.doubles.models import bf16, small_model
from tests.doubles.stores import memory_store
from tests.doubles.training import Trainer
from tests.reader.shards import expected, held_bits, params_for
from tests.reader.test_shard_engines import EXPERTS

W13 = "model.layers.1.mlp.experts.routed_experts.w13_weight"
ROUTER = "model.layers.0.mlp.gate.weight"


async def started() -> Trainer:
    random = np.random.default_rng(1)
    model = {spec.name: bf16(random.integers(0, 1 << 16, spec.shape)) for spec in model_of(EXPERTS).tensors()}
    table = slab_table(model_of(EXPERTS), model_of(EXPERTS).tensors(), slabs=8, moe="ep")
    return await Trainer.create(memory_store(), model, table=table)


def loaded(trainer: Trainer, layout: Any) -> dict[str, Any]:
    """The parameters of an engine that has loaded version 0 with loaders of its own."""
    params = params_for(layout)
    for name, bits in expected(layout, trainer.history[0], held_bits(params)).items():
        bits_of(name, params[name])[...] = bits
    return params


@pytest.mark.parametrize("options", [{"tp": 2}, {"tp": 4, "ep": 4, "router": "F32"}])
async def test_a_loaded_engine_with_the_right_layout_differs_nowhere(options: dict[str, Any]) -> None:
    trainer = await started()
    await trainer.steps(2, 300)
    layout = vllm(EXPERTS, rank=1, **options)
    params = loaded(trainer, layout)
    reader = await open_reader(trainer.store, params, layout=layout)
    before = held_bits(params)
    assert await reader.compare() == ()
    assert await reader.compare(0) == ()
    assert reader.version is None
    after = held_bits(params)
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)


async def test_experts_that_a_kernel_has_turned_round_are_named() -> None:
    """The shape is the same: nothing else would notice."""
    trainer = await started()
    layout = vllm(EXPERTS, tp=2, rank=0)
    params = loaded(trainer, layout)
    half = params[W13].shape[1] // 2
    params[W13][...] = np.roll(params[W13], half, axis=1)
    reader = await open_reader(trainer.store, params, layout=layout)
    assert await reader.compare() == (W13,)
    other = "model.layers.0.mlp.experts.routed_experts.w13_weight"
    turned = vllm(EXPERTS, tp=2, rank=0, experts="up_first")
    assert await (await open_reader(trainer.store, params, layout=turned)).compare() == (other,)


async def test_one_element_and_one_lower_half_are_enough() -> None:
    trainer = await started()
    layout = vllm(EXPERTS, tp=4, ep=4, rank=3, router="F32")
    params = loaded(trainer, layout)
    reader = await open_reader(trainer.store, params, layout=layout)
    bits_of("", params["model.norm.weight"])[3] ^= 1
    bits_of("", params[ROUTER])[1, 2] ^= 1  # below what BF16 has
    assert await reader.compare() == (ROUTER, "model.norm.weight")


async def test_after_syncing_a_later_version_the_one_stored_whole_differs() -> None:
    trainer = await started()
    layout = vllm(EXPERTS, tp=2, rank=1)
    reader = await open_reader(trainer.store, params_for(layout), layout=layout)
    await reader.sync()
    assert await reader.compare() == ()
    await trainer.step(800)
    await reader.sync()
    differing = await reader.compare()
    assert differing
    assert set(differing) <= set(layout.forms)
    assert reader.version == 1
    assert await reader.verify()
    await trainer.step(anchor=True)
    await reader.sync()
    assert await reader.compare() == ()


async def test_a_version_that_is_stored_as_a_delta() -> None:
    trainer = await started()
    for _ in range(3):
        await trainer.step(400)
    layout = vllm(EXPERTS, tp=2, ep=2, rank=1, router="F32")
    params = params_for(layout)
    reader = await open_reader(trainer.store, params, layout=layout)
    await reader.sync(2)
    assert await reader.compare(2) == ()
    assert set(await reader.compare(3)) <= set(layout.forms)
    assert await reader.compare(1)
    bits_of("", params[ROUTER])[1, 2] ^= 1
    assert await reader.compare(2) == (ROUTER,)
    assert reader.version == 2


async def test_a_reader_of_the_whole_model_names_tensors() -> None:
    trainer = await Trainer.create(memory_store(), small_model())
    live = {name: tensor.copy() for name, tensor in trainer.model.items()}
    reader = await open_reader(trainer.store, live)
    assert await reader.compare() == ()
    name = next(name for name, tensor in live.items() if tensor.ndim == 2 and tensor.size)
    bits_of(name, live[name])[0, 0] ^= 1
    assert await reader.compare() == (name,)
