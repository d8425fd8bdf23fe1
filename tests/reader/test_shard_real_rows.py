"""Rows of real shapes, every byte: what ranks hold after a delta, by formulas of this file's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from deltastore.layout.engines.sglang import sglang
from deltastore.layout.engines.vllm import vllm
from deltastore.layout.families import model_of
from deltastore.layout.live import LiveWeights
from deltastore.layout.pieces import Layout
from deltastore.layout.slabs import slab_table
from deltastore.reader.opening import open_reader
from deltastore.writer.opening import open_writer
from deltastore.writer.whole import create_stream
from tests.doubles.configs import QWEN3_30B
from tests.doubles.stores import memory_store

EXPERTS, VOCABULARY = 4, 4003
CONFIG = {**QWEN3_30B, "num_hidden_layers": 1, "num_experts": EXPERTS, "vocab_size": VOCABULARY}
HEADS, KV_HEADS, WIDE, ROWS = 32, 4, 128, 768
LAYER = "model.layers.0."
Bits = dict[str, np.ndarray[Any, Any]]


def rank_of(model: Bits, tp: int, ep: int, rank: int, middle: str) -> Bits:
    """The parameters of a rank, sliced by hand."""
    held: Bits = {"model.norm.weight": model["model.norm.weight"]}
    padded = -(-VOCABULARY // 64) * 64 // tp
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        rows = model[name][rank * padded : min((rank + 1) * padded, VOCABULARY)]
        held[name] = np.concatenate([rows, np.zeros((padded - len(rows), rows.shape[1]), np.uint16)])
    for name in (
        "input_layernorm",
        "post_attention_layernorm",
        "self_attn.q_norm",
        "self_attn.k_norm",
        "mlp.gate",
    ):
        held[f"{LAYER}{name}.weight"] = model[f"{LAYER}{name}.weight"]
    query, output = HEADS * WIDE // tp, HEADS * WIDE // tp
    count = max(1, KV_HEADS // tp) * WIDE
    first = rank * KV_HEADS // tp * WIDE
    q, k, v, o = (model[f"{LAYER}self_attn.{name}_proj.weight"] for name in "qkvo")
    parts = [q[rank * query : (rank + 1) * query], k[first : first + count], v[first : first + count]]
    held[f"{LAYER}self_attn.qkv_proj.weight"] = np.concatenate(parts)
    held[f"{LAYER}self_attn.o_proj.weight"] = o[:, rank * output : (rank + 1) * output]
    cuts = tp // ep
    high, part = ROWS // cuts, rank % cuts
    mine = range(rank // cuts * EXPERTS // ep, (rank // cuts + 1) * EXPERTS // ep)
    cut = slice(part * high, (part + 1) * high)

    def expert(number: int, name: str) -> np.ndarray[Any, Any]:
        return model[f"{LAYER}mlp.experts.{number}.{name}_proj.weight"]

    both = [np.concatenate([expert(one, "gate")[cut], expert(one, "up")[cut]]) for one in mine]
    held[f"{LAYER}mlp.{middle}.w13_weight"] = np.stack(both)
    held[f"{LAYER}mlp.{middle}.w2_weight"] = np.stack([expert(one, "down")[:, cut] for one in mine])
    return held


@pytest.mark.parametrize("moe", ["ep", "tp"])
async def test_every_byte_of_ranks_after_a_delta(moe: Any) -> None:
    model = model_of(CONFIG)
    random = np.random.default_rng(4)
    tensors = {spec.name: random.integers(0, 1 << 16, spec.shape, np.uint16) for spec in model.tensors()}
    store = memory_store()
    table = slab_table(model, model.tensors(), slabs=8, moe=moe)
    await create_stream(store, LiveWeights(table, tensors))
    writer = await open_writer(store, tensors, detector="external")
    draw: dict[str, Callable[..., Layout]] = {"experts.routed_experts": vllm, "experts": sglang}
    ranks = []
    for middle, tp, ep, rank in (
        ("experts.routed_experts", 8, 1, 3),
        ("experts.routed_experts", 4, 4, 2),
        ("experts", 4, 2, 3),
    ):
        layout = draw[middle](CONFIG, tp=tp, ep=ep, rank=rank)
        params = {param.name: np.zeros(param.shape, np.uint16) for param in layout.params}
        reader = await open_reader(store, params, layout=layout)
        await reader.sync()
        ranks.append((params, reader, (tp, ep, rank, middle)))
    marks = {}
    for name, bits in tensors.items():
        marks[name] = np.unique(random.integers(0, bits.size, bits.size // 100 + 1))
        bits.reshape(-1)[marks[name]] = random.integers(0, 1 << 16, len(marks[name]), np.uint16)
    writer.mark(marks)
    await writer.publish()
    for params, reader, (tp, ep, rank, middle) in ranks:
        assert (await reader.sync()).version == 1
        expected = rank_of(tensors, tp, ep, rank, middle)
        assert sorted(expected) == sorted(params)
        for name, bits in expected.items():
            assert np.array_equal(params[name], bits), name
