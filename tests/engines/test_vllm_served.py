"""After loading, vLLM's CPU kernels pack weights for themselves. No version is ever written into those."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import deltastore
from deltastore.layout.engines.vllm import vllm
from tests.engines.tiny import MODELS, drawn, saved_config
from tests.engines.vllm_rank import World, layout_of, loaded, params_of, served


@pytest.mark.parametrize("name", ["qwen3", "qwen3-moe"])
def test_a_reader_refuses_packed_parameters_by_name(name: str, tmp_path: Path) -> None:
    config, weights = bf16(name)
    folder = saved_config(config, tmp_path)
    packed = params_of(served(folder, weights.items()))
    before = {name: param.clone() for name, param in packed.items()}
    layout = layout_of(config, World(), 0)
    odd = {param.name for param in layout.params if tuple(packed[param.name].shape) != param.shape}
    assert any(packed[name].numel() == 0 for name in odd), "this CPU build of vLLM packs linear layers"
    with (
        deltastore.create(tmp_path / "stream", weights, config=config) as stream,
        pytest.raises(deltastore.InputError, match=r"has shape .* where layout vllm") as caught,
    ):
        stream.reader(packed, layout=layout)
    assert caught.value.code == "wrong_shape"
    assert caught.value.where in odd
    assert all(torch.equal(packed[name], bits) for name, bits in before.items())


def test_packed_experts_may_look_like_unpacked_ones(tmp_path: Path) -> None:
    """Shape, strides and type are the same, and every element stands elsewhere: only a name tells."""
    config, weights = bf16("qwen3-moe", moe_intermediate_size=64)
    folder = saved_config(config, tmp_path)
    name = "model.layers.0.mlp.experts.routed_experts.w13_weight"
    plain = params_of(loaded(folder, weights.items(), World(), 0, dtype="bfloat16"))[name]
    packed = params_of(served(folder, weights.items()))[name]
    assert (packed.shape, packed.stride(), packed.dtype) == (plain.shape, plain.stride(), plain.dtype)
    assert not torch.equal(packed, plain)
    assert torch.equal(packed.flatten().sort().values, plain.flatten().sort().values)
    with pytest.raises(deltastore.InputError, match="only the kernel knows") as caught:
        vllm(config, experts="cpu")
    assert caught.value.code == "private_layout"


def bf16(name: str, **members: Any) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    config = MODELS[name] | {"dtype": "bfloat16"} | members
    return config, drawn(config, seed=5)
