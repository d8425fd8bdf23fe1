"""What cannot be drawn is refused before anything is fetched, with the parameter and the numbers."""

from __future__ import annotations

from typing import Any

import pytest

from deltastore.errors import InputError
from deltastore.layout.engines import sglang, vllm
from tests.doubles.configs import SMALL

PRIVATE = (
    "flashinfer_trtllm",
    "flashinfer-trtllm",
    "trtllm",
    "aiter",
    "amx",
    "npu",
    "marlin",
    "machete",
    "cutlass",
)


_ODD_HEADS = {**SMALL["llama"], "num_attention_heads": 36, "num_key_value_heads": 6}


def refused(engine: Any, code: str, model: str = "qwen3-moe", **said: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        engine(SMALL[model], **said)
    assert caught.value.code == code
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("engine", [vllm, sglang])
@pytest.mark.parametrize("name", PRIVATE)
def test_what_only_a_kernel_knows_is_refused_by_name(engine: Any, name: str) -> None:
    error = refused(engine, "private_layout", experts=name)
    assert error.where == name
    assert repr(name) in str(error)
    assert "start the engine with a MoE backend" in str(error)


@pytest.mark.parametrize("engine", [vllm, sglang])
def test_unknown_words(engine: Any) -> None:
    error = refused(engine, "bad_argument", experts="sideways")
    assert "'sideways'" in str(error)
    assert "standard, transposed, up_first" in str(error)
    assert "experts=['triton']" in str(refused(engine, "bad_argument", experts=["triton"]))
    assert "'F32'" in str(refused(engine, "bad_argument", router="BF16"))
    assert "norms='f32'" in str(refused(engine, "bad_argument", norms="f32"))
    assert "linear, round_robin" in str(refused(vllm, "bad_argument", placement="random"))
    assert "placement=[]" in str(refused(vllm, "bad_argument", placement=[]))


@pytest.mark.parametrize(
    ("engine", "other", "name", "same"),
    [
        (vllm, sglang, "xpu", "transposed"),
        (sglang, vllm, "triton_kernel", "transposed"),
        (vllm, None, "triton", "standard"),
        (sglang, None, "triton", "standard"),
        (vllm, None, "flashinfer_cutlass", "up_first"),
        (sglang, None, "flashinfer_cutlass", "up_first"),
    ],
)
def test_names_of_backends_are_those_of_the_engine(engine: Any, other: Any, name: str, same: str) -> None:
    assert engine(SMALL["qwen3-moe"], experts=name) == engine(SMALL["qwen3-moe"], experts=same)
    if other is not None:
        error = refused(other, "bad_argument", experts=name)
        assert f"experts={name!r} is not known" in str(error)
        assert name not in str(error).partition("known are")[2].split(", ")


@pytest.mark.parametrize("engine", [vllm, sglang])
def test_degrees_that_do_not_divide(engine: Any) -> None:
    error = refused(engine, "bad_layout", tp=3)
    assert error.where == "model.layers.0.self_attn.qkv_proj.weight"
    assert "16 heads cannot be cut into 3" in str(error)
    with pytest.raises(InputError, match="6 key and value heads cannot be cut into 4"):
        engine(_ODD_HEADS, tp=4)
    with pytest.raises(InputError, match="6 key and value heads can be neither cut into nor copied to 9"):
        engine(_ODD_HEADS, tp=9)
    with pytest.raises(InputError, match=r"'model.layers.0.mlp.gate_up_proj.weight': 50 rows"):
        engine({**SMALL["llama"], "intermediate_size": 50}, tp=4)
    with pytest.raises(InputError, match=r"w13_weight': 20 rows of every expert cannot be cut into 8"):
        engine({**SMALL["qwen3-moe"], "moe_intermediate_size": 20}, tp=8)
    error = refused(engine, "bad_layout", "deepseek", tp=32)
    assert error.where == "model.layers.0.self_attn.q_b_proj.weight"


def test_a_vocabulary_that_vllm_cannot_cut() -> None:
    config = {**SMALL["llama"], "num_attention_heads": 12, "num_key_value_heads": 6}
    with pytest.raises(InputError) as caught:
        vllm(config, tp=6)
    assert caught.value.where == "model.embed_tokens.weight"
    assert "128 rows of the padded vocabulary cannot be cut into 6" in str(caught.value)


@pytest.mark.parametrize("engine", [vllm, sglang])
def test_ranks_and_degrees_out_of_range(engine: Any) -> None:
    error = refused(engine, "bad_argument", tp=2, pp=2, rank=4)
    assert "rank 4 is none of the 4 ranks that tp 2 x pp 2" in str(error)
    assert "give one from 0 to 3" in str(error)
    assert "rank -1" in str(refused(engine, "bad_argument", rank=-1))
    assert "tp=0: give an integer of at least 1" in str(refused(engine, "bad_argument", tp=0))
    assert "pp 4 leaves stages without a layer" in str(refused(engine, "bad_layout", pp=4))


@pytest.mark.parametrize("engine", [vllm, sglang])
@pytest.mark.parametrize("name", ["tp", "pp", "dp", "ep", "rank"])
@pytest.mark.parametrize("given", ["2", 1.0, True, None, [1]])
def test_numbers_that_are_none(engine: Any, name: str, given: Any) -> None:
    with pytest.raises(InputError) as caught:
        engine(SMALL["qwen3-moe"], **{name: given})
    assert caught.value.code == "bad_argument"
    assert f"{name} {given!r} is none of" in str(caught.value) or f"{name}={given!r}: " in str(caught.value)


@pytest.mark.parametrize("engine", [vllm, sglang])
@pytest.mark.parametrize("name", ["tp", "pp", "ep"])
def test_degrees_that_no_machine_has(engine: Any, name: str) -> None:
    with pytest.raises(InputError) as caught:
        engine(SMALL["qwen3-moe"], **{name: 1 << 70})
    assert caught.value.code == "bad_layout"


@pytest.mark.parametrize("engine", [vllm, sglang])
def test_what_is_no_configuration(engine: Any) -> None:
    for given in (None, 3, object(), dict):
        with pytest.raises(
            InputError, match="is no configuration: give a mapping, an object with to_dict"
        ) as caught:
            engine(given)
        assert caught.value.code == "unknown_model"


def test_expert_parallelism_that_there_is_not() -> None:
    assert "neither 1 nor tp x dp = 4" in str(refused(vllm, "bad_layout", tp=4, ep=2))
    assert "ep 32 leaves processes without" in str(refused(vllm, "bad_layout", dp=32, ep=32))
    assert "ep 2 leaves processes without" in str(refused(vllm, "bad_layout", "llama", tp=2, ep=2))
    assert "ep 3 does not divide tp 4" in str(refused(sglang, "bad_layout", tp=4, ep=3))
    assert "ep 2 does not divide the 0 experts" in str(refused(sglang, "bad_layout", "llama", tp=2, ep=2))
    assert "linearly" in str(refused(vllm, "bad_layout", tp=2, ep=2, placement="round_robin"))


def test_data_parallel_attention_that_there_is_not() -> None:
    assert "dp 3 does not divide tp 4" in str(refused(sglang, "bad_layout", tp=4, dp=3))
    for model in ("llama", "qwen2-tied"):
        assert "no data-parallel attention" in str(refused(sglang, "bad_layout", model, tp=2, dp=2))


def test_a_bias_that_the_engine_has_no_parameter_for() -> None:
    error = refused(sglang, "bad_layout", "llama-biased")
    assert error.where == "model.layers.0.mlp.gate_up_proj.bias"
    assert "gate_proj.bias" in str(error)
    with pytest.raises(InputError, match=r"o_proj.bias"):
        vllm({**SMALL["qwen3"], "attention_bias": True})
    with pytest.raises(InputError, match=r"q_a_proj.bias"):
        vllm({**SMALL["deepseek"], "attention_bias": True})


def test_a_shared_expert_that_cannot_be_one_of_the_others() -> None:
    assert "not as large" in str(refused(sglang, "bad_layout", "deepseek-lite", fused_shared=True))


def test_other_types_are_for_bfloat16_only() -> None:
    with pytest.raises(InputError, match=r"it is F32 where tensor .* is F16") as caught:
        vllm({**SMALL["qwen3-moe"], "dtype": "float16"}, router="F32")
    assert caught.value.where == "model.layers.0.mlp.gate.weight"
