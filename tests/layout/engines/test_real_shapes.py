"""Shapes, boxes and coverage of thousands of processes, for the shapes of real models (fewer layers)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import pytest

from deltastore.layout.engines import sglang, vllm
from deltastore.layout.families import model_of
from deltastore.layout.model import Model
from deltastore.layout.pieces import Layout
from deltastore.layout.planning import check_world
from tests.doubles.configs import REAL, with_layers

DEGREES = (1, 2, 4, 8, 16)

QKV_ROWS = {
    "Qwen3-8B": (6144, 3072, 1536, 768, 512),
    "Qwen3-30B-A3B": (5120, 2560, 1280, 768, 512),
    "Llama-3-8B": (6144, 3072, 1536, 768, 512),
    "Llama-3-70B": (10240, 5120, 2560, 1280, 768),
    "Qwen3-235B-A22B": (9216, 4608, 2304, 1280, 768),
}
DENSE = ("Qwen3-8B", "Llama-3-8B", "Llama-3-70B")
MIXTURES = ("Qwen3-30B-A3B", "Qwen3-235B-A22B")


@cache
def reduced(name: str, layers: int) -> Model:
    return model_of(with_layers(REAL[name], layers))


def shapes(layout: Layout) -> dict[str, tuple[int, ...]]:
    return {name: param.shape for name, param in layout.forms.items()}


def worlds() -> Iterator[tuple[str, dict[str, Any]]]:
    """Engines and degrees for a dense model."""
    for tp in DEGREES:
        for pp in (1, 2, 3):
            yield "vllm", {"tp": tp, "pp": pp}
            yield "sglang", {"tp": tp, "pp": pp}


@pytest.mark.parametrize("name", DENSE)
def test_every_rank_of_a_dense_model(name: str) -> None:
    model, config = reduced(name, 3), REAL[name]
    hidden, inner, rows = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    heads = config["num_attention_heads"] * config.get("head_dim", hidden // config["num_attention_heads"])
    for engine, said in worlds():
        tp, pp = said["tp"], said["pp"]
        world = [(vllm if engine == "vllm" else sglang)(model, **said, rank=rank) for rank in range(tp * pp)]
        expected = {
            "self_attn.qkv_proj.weight": (QKV_ROWS[name][DEGREES.index(tp)], hidden),
            "self_attn.o_proj.weight": (hidden, heads // tp),
            "mlp.gate_up_proj.weight": (2 * inner // tp, hidden),
            "mlp.down_proj.weight": (hidden, inner // tp),
            "input_layernorm.weight": (hidden,),
        }
        for rank, layout in enumerate(world):
            found = shapes(layout)
            numbers = {int(param.split(".")[2]) for param in found if param.startswith("model.layers.")}
            for number in numbers:
                for param, shape in expected.items():
                    assert found[f"model.layers.{number}.{param}"] == shape
            assert ("model.embed_tokens.weight" in found) == (rank < tp)
            assert ("model.norm.weight" in found) == (rank >= tp * (pp - 1))
            assert all(shape == (rows // tp, hidden) for param, shape in found.items() if "lm_head" in param)
        check_world(world)


@pytest.mark.parametrize("name", MIXTURES)
def test_every_rank_of_a_mixture_of_experts(name: str) -> None:
    model, config = reduced(name, 1), REAL[name]
    hidden, inner = config["hidden_size"], config["moe_intermediate_size"]
    orientations = ("standard", "transposed", "up_first")[: 3 if name == "Qwen3-30B-A3B" else 1]
    into, out = "model.layers.0.mlp.experts.w13_weight", "model.layers.0.mlp.experts.w2_weight"
    for tp in DEGREES:
        for ep in (degree for degree in DEGREES if degree <= tp):
            cut = tp // ep
            part = inner // cut
            for rank, orientation in product(range(tp), orientations):
                found = shapes(sglang(model, tp=tp, ep=ep, rank=rank, experts=orientation))
                first, second = (2 * part, hidden), (hidden, part)
                if orientation == "transposed":
                    first, second = first[::-1], second[::-1]
                assert found[into] == (128 // ep, *first)
                assert found[out] == (128 // ep, *second)
                assert found["model.layers.0.mlp.gate.weight"] == (128, hidden)
                qkv = found["model.layers.0.self_attn.qkv_proj.weight"]
                assert qkv == (QKV_ROWS[name][DEGREES.index(tp)], hidden)


@pytest.mark.parametrize("name", MIXTURES)
def test_every_rank_of_experts_in_vllm(name: str) -> None:
    model, config = reduced(name, 1), REAL[name]
    hidden, inner = config["hidden_size"], config["moe_intermediate_size"]
    prefix = "model.layers.0.mlp.experts.routed_experts"
    for tp, dp, ep in ((4, 1, 1), (8, 1, 8), (2, 4, 8), (1, 3, 3), (2, 2, 1), (16, 1, 16)):
        world = [vllm(model, tp=tp, dp=dp, ep=ep, rank=rank) for rank in range(tp * dp)]
        slots = 0
        for layout in world:
            found = shapes(layout)
            count = found[f"{prefix}.w13_weight"][0]
            part = inner if ep > 1 else inner // (tp * dp)
            assert found[f"{prefix}.w13_weight"] == (count, 2 * part, hidden)
            assert found[f"{prefix}.w2_weight"] == (count, hidden, part)
            slots += count
        assert slots == (128 if ep > 1 else 128 * tp * dp)
        check_world(world)


def boxes(layout: Layout) -> int:
    """Pieces that a process cuts out of the model; norms, router and head are not counted."""
    names = ("norm", ".mlp.gate.weight", "lm_head")
    return sum(not any(name in piece.param for name in names) for piece in layout.pieces)


def test_boxes_per_rank() -> None:
    model = model_of(REAL["Qwen3-8B"])
    for tp in DEGREES:
        assert {boxes(vllm(model, tp=tp, rank=rank)) for rank in range(tp)} == {253}
    model = model_of(REAL["Llama-3-8B"])
    for tp in DEGREES:
        assert {boxes(sglang(model, tp=tp, rank=rank)) for rank in (0, tp - 1)} == {225}
    model = model_of(REAL["Qwen3-30B-A3B"])
    assert boxes(vllm(model, tp=8, rank=5)) == 18_625
    assert boxes(vllm(model, tp=8, ep=8, rank=5)) == 2_497
    assert boxes(sglang(model, tp=8, ep=8, rank=7)) == 2_497


def test_every_element_of_a_real_model_is_held_as_often_as_it_must_be() -> None:
    model = reduced("Qwen3-30B-A3B", 2)
    elements = {tensor.name: 0 for tensor in model.tensors()}
    for rank in range(8):
        for piece in sglang(model, tp=8, ep=4, rank=rank).pieces:
            elements[piece.tensor] += piece.elements
    for tensor in model.tensors():
        whole = 1
        for length in tensor.shape:
            whole *= length
        copies = elements[tensor.name] // whole
        assert elements[tensor.name] == copies * whole
        if "norm" in tensor.name or ".mlp.gate." in tensor.name:
            assert copies == 8
        elif ".k_proj." in tensor.name or ".v_proj." in tensor.name:
            assert copies == 2  # 4 heads, 8 ranks
        else:
            assert copies == 1
