"""The layout of vLLM against vLLM: every parameter after its own weight loaders, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from deltastore.errors import InputError
from deltastore.layout.pieces import Layout
from tests.engines.laid_out import laid_out
from tests.engines.tiny import MODELS, numbered, saved_config
from tests.engines.vllm_rank import BACKENDS, UNFED, World, arranged, layout_of, loaded, params_of, ties_of

TENSOR = [World(tp=tp) for tp in (1, 2, 4, 8)]  # heads of keys: 2, so at 4 and 8 some ranks hold the same
PIPELINE = [World(pp=3), World(tp=2, pp=2)]  # 4 layers on 3 stages: 1, 2, 1
EXPERT = [
    World(tp=2, dp=2),  # experts cut in 4, attention in 2
    World(tp=4, expert_parallel=True),  # 9 experts on 4 ranks: 3, 2, 2, 2
    World(tp=2, dp=2, expert_parallel=True),
    World(tp=2, pp=2, expert_parallel=True),
]
ROUND_ROBIN = World(tp=4, expert_parallel=True, placement="round_robin")

ARRANGED = {
    "triton": "standard",
    "batched_triton": "standard",
    "flashinfer_cutlass": "up_first",
    "xpu": "transposed",
}
NOT_ITS_OWN = {"tpu", "oot"}  # another project's plugin decides


def cases() -> Iterator[tuple[str, World]]:
    for name, config in MODELS.items():
        grouped, routed = "n_group" in config, "num_experts_per_tok" in config
        worlds = TENSOR + PIPELINE + EXPERT * routed + [ROUND_ROBIN] * grouped
        yield from ((name, world) for world in worlds)


@pytest.mark.parametrize(("name", "world"), list(cases()), ids=str)
def test_vllm_loads_every_element_where_the_layout_says(name: str, world: World, tmp_path: Path) -> None:
    config = MODELS[name]
    folder, tensors = saved_config(config, tmp_path), numbered(config)
    for rank in range(world.size):
        model = loaded(folder, weights(tensors), world, rank)
        layout = layout_of(config, world, rank)
        live = params_of(model)
        assert shapes(live) == {param.name: (param.shape, param.dtype.name) for param in layout.params}
        named = layout.specs.keys() | layout.aliases.keys()
        assert {name: to for name, to in ties_of(model).items() if name in named} == layout.ties
        for param in live:
            compare(live[param].numpy(), layout, param, tensors)


@pytest.mark.parametrize(("backend", "experts"), ARRANGED.items())
def test_experts_stand_as_the_backend_wants_them(backend: str, experts: str, tmp_path: Path) -> None:
    config = MODELS["qwen3-moe"]
    folder, tensors = saved_config(config, tmp_path), numbered(config)
    for rank in range(2):
        live = params_of(arranged(loaded(folder, weights(tensors), World(tp=2), rank), backend))
        layout = layout_of(config, World(tp=2), rank, experts=experts)
        assert shapes(live) == {param.name: (param.shape, param.dtype.name) for param in layout.params}
        for param in live:
            compare(live[param].numpy(), layout, param, tensors)


@pytest.mark.parametrize("backend", sorted(BACKENDS - ARRANGED.keys()))
def test_every_other_backend_is_refused_by_name(backend: str) -> None:
    with pytest.raises(InputError) as caught:
        layout_of(MODELS["qwen3-moe"], World(), 0, experts=backend)
    assert caught.value.code == ("bad_argument" if backend in NOT_ITS_OWN else "private_layout")


@pytest.mark.parametrize("name", MODELS)
def test_parameters_have_the_element_types_of_the_layout(name: str, tmp_path: Path) -> None:
    """At BF16, as engines run: what a checkpoint holds in FP32, an expert bias, stays FP32."""
    config = MODELS[name] | {"dtype": "bfloat16"}
    model = loaded(saved_config(config, tmp_path), [], World(tp=2), 1, dtype="bfloat16")
    layout = layout_of(config, World(tp=2), 1)
    assert shapes(params_of(model)) == {
        param.name: (param.shape, param.dtype.name) for param in layout.params
    }


def weights(tensors: dict[str, NDArray[np.float32]]) -> Iterator[tuple[str, torch.Tensor]]:
    return ((name, torch.from_numpy(tensor)) for name, tensor in tensors.items())


def shapes(live: dict[str, torch.Tensor]) -> dict[str, tuple[tuple[int, ...], str]]:
    types = {torch.float32: "F32", torch.bfloat16: "BF16"}
    return {name: (tuple(param.shape), types[param.dtype]) for name, param in live.items()}


def compare(
    live: NDArray[np.float32], layout: Layout, param: str, tensors: dict[str, NDArray[np.float32]]
) -> None:
    """Padding is what vLLM leaves alone, or fills with zeros."""
    said = laid_out(layout, param, tensors)
    padding = np.isnan(said)
    assert np.isin(live[padding], (0.0, UNFED)).all(), param
    bits, wanted = (one.view(np.uint32)[~padding] for one in (live, said))
    np.testing.assert_array_equal(bits, wanted, err_msg=param)
