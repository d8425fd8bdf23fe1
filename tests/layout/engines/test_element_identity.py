"""Every element of every parameter is the one that the engine's own loader would have put there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from deltastore.layout.engines import sglang, vllm
from deltastore.layout.families import model_of
from deltastore.layout.pieces import Layout
from deltastore.layout.planning import check_world
from tests.doubles.configs import SMALL, Fields
from tests.layout.engines.loading import Ids
from tests.layout.engines.sglang_double import SglangDouble
from tests.layout.engines.vllm_double import VllmDouble
from tests.layout.reassembling import held, reassemble, unique_ids

Said = dict[str, Any]

DEGREES: tuple[Said, ...] = (
    *({"tp": tp} for tp in (1, 2, 4, 8, 16)),
    {"pp": 2},
    {"tp": 2, "pp": 3},
)
EXPERTS = ("standard", "transposed", "up_first")


def check(engine: str, config: Fields, said: Said) -> None:
    """All ranks of one world against the double, and the model from what all of them hold."""
    draw, double = (vllm, VllmDouble) if engine == "vllm" else (sglang, SglangDouble)
    model = model_of(config)
    ids = unique_ids(model.tensors())
    world = said.get("tp", 1) * said.get("pp", 1) * (said.get("dp", 1) if engine == "vllm" else 1)
    layouts: list[Layout] = []
    memories: list[dict[str, Ids]] = []
    for rank in range(world):
        layout = draw(model, **said, rank=rank)
        loaded = double(config, **said, rank=rank).load_weights(ids)
        assert {param.name: param.shape for param in layout.params} == {
            name: data.shape for name, data in loaded.items()
        }
        for name, data in held(layout, ids).items():
            assert np.array_equal(data, loaded[name]), f"{layout.name}: {name}"
        layouts.append(layout)
        memories.append(loaded)
    for name, whole in reassemble(layouts, memories).items():
        assert np.array_equal(whole, ids[name]), name
    check_world(layouts)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("model", SMALL)
def test_all_degrees(engine: str, model: str) -> None:
    config = SMALL[model]
    if engine == "sglang":
        config = {**config, "mlp_bias": False}
    for said in DEGREES:
        check(engine, config, said)


def mixtures() -> Iterator[tuple[str, str, Said]]:
    """Every cut of experts in one orientation or another; cut in four, in all of them."""
    turn = itertools.cycle(EXPERTS)
    for model in ("qwen3-moe", "deepseek"):
        for tp in (1, 2, 4, 8):
            cuts = [("vllm", tp), *(("sglang", ep) for ep in sorted({1, max(tp // 2, 1), tp}))]
            for engine, ep in cuts:
                for experts in EXPERTS if tp == 4 else (next(turn),):
                    yield engine, model, {"tp": tp, "ep": ep, "experts": experts}
        yield "vllm", model, {"tp": 4, "experts": "transposed"}
        yield "vllm", model, {"tp": 2, "pp": 2, "ep": 2}
        yield "vllm", model, {"tp": 2, "dp": 2, "pp": 2, "ep": 4}
        yield "vllm", model, {"tp": 2, "dp": 4}
        yield "vllm", model, {"dp": 4, "ep": 4}
        yield "vllm", model, {"dp": 3, "ep": 3}
        for dp in (2, 4, 8):
            yield "sglang", model, {"tp": 8, "dp": dp, "ep": 4}
        yield "sglang", model, {"tp": 4, "dp": 2, "pp": 2, "ep": 2}
    for ep in (2, 3, 5):
        yield "vllm", "deepseek", {"dp": ep, "ep": ep, "placement": "round_robin"}
    for ep in (1, 2):
        yield "sglang", "deepseek", {"tp": 4, "ep": ep, "fused_shared": True}
    yield "sglang", "deepseek-lite", {"tp": 4, "dp": 2, "experts": "up_first"}


@pytest.mark.parametrize(("engine", "model", "said"), list(mixtures()))
def test_experts(engine: str, model: str, said: Said) -> None:
    check(engine, SMALL[model], said)


def test_data_parallel_attention_of_a_dense_model() -> None:
    for model in ("qwen3", "qwen3-tied"):
        for dp in (2, 4):
            check("sglang", SMALL[model], {"tp": 4, "dp": dp, "pp": 2})
            check("sglang", SMALL[model], {"tp": 8, "dp": dp})


def test_vllm_engines_side_by_side_hold_the_same() -> None:
    check("vllm", SMALL["qwen3-tied"], {"tp": 2, "dp": 2, "pp": 2})


@pytest.mark.parametrize("tp", [3, 6])
def test_sglang_pads_the_vocabulary_by_the_degree_if_64_is_not_enough(tp: int) -> None:
    config = {**SMALL["llama"], "num_attention_heads": 12, "num_key_value_heads": 6}
    check("sglang", config, {"tp": tp})


def test_an_embedding_may_be_wider_and_its_tied_head_with_it() -> None:
    one = sglang(SMALL["qwen3-tied"], embedding="F32")
    assert one.param("lm_head.weight").dtype.name == "F32"
    last = sglang(SMALL["qwen3-tied"], pp=2, rank=1, embedding="F32")
    assert last.param("lm_head.weight").dtype.name == "BF16"


def test_other_element_types_change_nothing_but_the_type() -> None:
    for draw in (vllm, sglang):
        plain = draw(SMALL["qwen3-moe"], tp=2)
        wide = draw(SMALL["qwen3-moe"], tp=2, router="F32", norms="F32")
        assert plain.pieces == wide.pieces
        changed = {
            one.name
            for one, other in zip(plain.params, wide.params, strict=True)
            if (one.dtype.name, other.dtype.name) == ("BF16", "F32")
        }
        same = {one.name for one, other in zip(plain.params, wide.params, strict=True) if one == other}
        assert changed == {
            param.name for param in plain.params if "norm." in param.name or ".mlp.gate." in param.name
        }
        assert changed | same == set(plain.forms)
