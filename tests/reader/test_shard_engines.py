"""Shards of vLLM and SGLang at every degree: the parameters of all ranks, and what each of them fetches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deltastore.layout.cutting import plain_table
from deltastore.layout.engines.sglang import sglang
from deltastore.layout.engines.vllm import vllm
from deltastore.layout.families import model_of
from deltastore.layout.pieces import Layout
from deltastore.layout.slabs import slab_table
from deltastore.reader.fetch_plan import plan_delta
from deltastore.reader.needed import Needed
from tests.doubles.models import Tensors, bf16
from tests.doubles.stores import memory_store
from tests.doubles.training import Trainer
from tests.reader.shards import Shard, newest_delta, sliced

_SHARED = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "vocab_size": 100,
    "intermediate_size": 32,
}
DENSE = {
    "architectures": ["Qwen3ForCausalLM"],
    **_SHARED,
    "num_key_value_heads": 8,
    "tie_word_embeddings": True,
}
EXPERTS = {
    "architectures": ["Qwen3MoeForCausalLM"],
    **_SHARED,
    "num_experts": 8,
    "moe_intermediate_size": 16,
}


def model_for(config: dict[str, Any]) -> Tensors:
    random = np.random.default_rng(1)
    return {spec.name: bf16(random.integers(0, 1 << 16, spec.shape)) for spec in model_of(config).tensors()}


def ranks_of(config: dict[str, Any], engine: Any, **options: Any) -> list[Layout]:
    world = options.get("tp", 1) * options.get("dp", 1)
    return [engine(config, rank=rank, **options) for rank in range(world)]


CASES: list[tuple[dict[str, Any], Any, dict[str, Any]]] = [
    (DENSE, vllm, {"tp": 2}),
    (DENSE, vllm, {"tp": 8, "norms": "F32"}),
    (DENSE, sglang, {"tp": 4}),
    ({**DENSE, "num_key_value_heads": 2}, sglang, {"tp": 8}),
    (EXPERTS, vllm, {"tp": 4, "router": "F32"}),
    (EXPERTS, vllm, {"tp": 8, "ep": 8}),
    (EXPERTS, sglang, {"tp": 4, "ep": 4, "experts": "up_first"}),
    (EXPERTS, sglang, {"tp": 2, "experts": "transposed"}),
]


@pytest.mark.usefixtures("by_ranges")
@pytest.mark.parametrize(("config", "engine", "options"), CASES)
async def test_every_rank_follows_and_fetches_its_share(
    config: dict[str, Any], engine: Any, options: dict[str, Any]
) -> None:
    model = model_for(config)
    specs = list(model_of(config).tensors())
    table = slab_table(model_of(config), specs, slabs=8, moe="ep" if "ep" in options else "tp")
    trainer = await Trainer.create(memory_store(), model, table=table, pack_bytes=1 << 20)
    layouts = ranks_of(config, engine, **options)
    shards = [await Shard.start(trainer.store, layout) for layout in layouts]
    for shard in shards:
        await shard.reader.sync()
        assert shard.wrong(trainer.history, sliced) == []
    await trainer.step(1500)
    record = await newest_delta(trainer)
    for shard in shards:
        plan = await plan_delta(trainer.store, record, Needed.of(table, shard.layout))
        synced = await shard.reader.sync()
        assert (plan.nbytes, plan.requests) == (synced.nbytes, synced.requests)
        assert all(pack.requests <= 4 for pack in plan.packs)
        if config["num_key_value_heads"] == table.slabs:  # fewer stand by turns in the common slab
            assert plan.nbytes - plan.index_bytes == plan.needed_bytes
        assert shard.wrong(trainer.history, sliced) == []
        assert await shard.reader.verify()


async def test_a_grid_that_knows_no_engine_serves_all_the_same() -> None:
    model = model_for(EXPERTS)
    table = plain_table(model_of(EXPERTS).tensors())
    trainer = await Trainer.create(memory_store(), model, table=table)
    shards = [await Shard.start(trainer.store, layout) for layout in ranks_of(EXPERTS, vllm, tp=4, ep=4)]
    for count in (0, 300, 5):
        if count:
            await trainer.step(count)
        for shard in shards:
            await shard.reader.sync()
            assert shard.wrong(trainer.history, sliced) == []
    assert all([await shard.reader.verify() for shard in shards])
