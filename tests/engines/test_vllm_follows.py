"""From a trainer's checkpoint to vLLM's live parameters: as if vLLM had loaded each version itself."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

import deltastore
from tests.engines.tiny import MODELS, drawn, saved_config
from tests.engines.vllm_rank import World, arranged, layout_of, loaded, params_of


@pytest.mark.parametrize(
    ("name", "world", "backend", "experts"),
    [
        ("qwen3 tied", World(tp=2), "triton", "standard"),
        ("qwen2", World(tp=4), "triton", "standard"),
        ("qwen3-moe", World(tp=2), "triton", "standard"),
        ("qwen3-moe", World(tp=2, expert_parallel=True), "triton", "standard"),
        # Loading again would put gates where this kernel has the others: same shapes, wrong answers.
        ("qwen3-moe", World(tp=2), "flashinfer_cutlass", "up_first"),
        ("deepseek-v3", World(tp=2, pp=2), "triton", "standard"),
    ],
    ids=str,
)
def test_every_rank_follows_three_versions(
    name: str, world: World, backend: str, experts: str, tmp_path: Path
) -> None:
    config = MODELS[name] | {"dtype": "bfloat16"}
    folder = saved_config(config, tmp_path)
    weights = drawn(config, seed=1)
    ranks = range(world.size)

    def memory(weights: dict[str, torch.Tensor], rank: int) -> dict[str, torch.Tensor]:
        """What an engine has in memory that loads these weights."""
        model = loaded(folder, weights.items(), world, rank, dtype="bfloat16")
        return params_of(arranged(model, backend))

    with ExitStack() as stack:
        stream = stack.enter_context(deltastore.create(tmp_path / "stream", weights, config=config, slabs=4))
        writer = stack.enter_context(stream.writer(weights))
        # What the engine starts from is of no version.
        start = drawn(config, seed=2)
        live = [memory(start, rank) for rank in ranks]
        readers = [
            stream.reader(live[rank], layout=layout_of(config, world, rank, experts=experts))
            for rank in ranks
        ]
        for step in range(4):
            if step:
                change(weights, step)
                assert writer.publish().version == step
            for rank in ranks:
                readers[rank].poll()
                assert readers[rank].sync().version == step
                fresh = memory(weights, rank)
                assert live[rank].keys() == fresh.keys()
                for param, expected in fresh.items():
                    assert same_bits(live[rank][param], expected), (rank, param)
                assert readers[rank].verify()


def change(weights: dict[str, torch.Tensor], step: int) -> None:
    """About one element in 50 of every tensor, and the first."""
    generator = torch.Generator().manual_seed(step)
    for tensor in weights.values():
        flat = tensor.view(-1)
        chosen = torch.randint(flat.numel(), (1 + flat.numel() // 50,), generator=generator)
        flat[chosen] = torch.randn(chosen.shape, generator=generator).to(flat.dtype)
        flat[0] = -flat[0]


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    bits = {2: torch.int16, 4: torch.int32}[one.element_size()]
    return one.dtype == other.dtype and torch.equal(one.view(bits), other.view(bits))
