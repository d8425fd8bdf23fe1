"""The aligned grid against the layouts of engines: every piece is whole chunks of its process's own slabs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deltastore.format.table import TensorTable
from deltastore.layout.cuts import Experts
from deltastore.layout.engines.sglang import sglang
from deltastore.layout.engines.vllm import vllm
from deltastore.layout.families import model_of
from deltastore.layout.pieces import Layout
from deltastore.layout.slabs import slab_table
from tests.doubles import configs

DENSE = {
    "qwen3-8b": configs.QWEN3_8B,
    "llama-3-70b": configs.LLAMA_3_70B,
    "qwen3-0.6b-tied": configs.QWEN3_0_6B,
    "llama-3.2-3b-tied": configs.LLAMA_3_2_3B,
}
MIXTURES = {
    "qwen3-30b": configs.QWEN3_30B,
    "qwen3-235b": configs.QWEN3_235B,
    "deepseek": {**configs.DEEPSEEK, "first_k_dense_replace": 1},
}


def table_of(config: dict[str, Any], moe: Experts = "ep", layers: int = 2) -> TensorTable:
    model = model_of({**config, "num_hidden_layers": layers})
    return slab_table(model, model.tensors(), slabs=8, moe=moe)


def elements_met(table: TensorTable, layout: Layout) -> tuple[int, set[int]]:
    """Elements of the chunks that a process needs, each chunk once, and their slabs."""
    needed: dict[int, np.ndarray[Any, Any]] = {}
    for piece in layout.pieces:
        number, member = table.places[piece.tensor]
        array = table.arrays[number]
        wanted = needed.setdefault(number, np.zeros(array.grid.counts, dtype=bool))
        box = zip((member, *piece.lo), (1, *piece.size), array.chunk, strict=True)
        wanted[tuple(slice(low // step, -(-(low + length) // step)) for low, length, step in box)] = True
    elements, slabs = 0, set[int]()
    for number, wanted in needed.items():
        chunks = np.flatnonzero(wanted)
        array = table.arrays[number]
        elements += int(array.grid.elements(chunks).sum())
        slabs |= set(array.slabs(chunks, table.slabs).tolist())
    return elements, slabs


def check_exact(table: TensorTable, layouts: list[Layout], config: dict[str, Any]) -> None:
    """No process meets an element that it does not hold. All are in its slabs, or in those of its KV head."""
    per_rank = table.slabs // len(layouts)
    heads = config["num_key_value_heads"]
    for rank, layout in enumerate(layouts):
        met, slabs = elements_met(table, layout)
        assert met == layout.elements
        first = (
            rank * heads // len(layouts) * table.slabs // heads if heads < len(layouts) else rank * per_rank
        )
        assert slabs <= {0, 1 + first, *range(1 + rank * per_rank, 1 + (rank + 1) * per_rank)}


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize("name", DENSE)
def test_dense_models_under_tensor_parallelism(name: str, tp: int) -> None:
    config = {**DENSE[name], "num_hidden_layers": 2}
    table = table_of(config)
    check_exact(table, [vllm(config, tp=tp, rank=rank) for rank in range(tp)], config)
    check_exact(table, [sglang(config, tp=tp, rank=rank) for rank in range(tp)], config)


@pytest.mark.parametrize("degree", [1, 2, 4, 8])
@pytest.mark.parametrize("name", MIXTURES)
def test_whole_experts_under_expert_parallelism(name: str, degree: int) -> None:
    config = {**MIXTURES[name], "num_hidden_layers": 2}
    table = table_of(config)
    check_exact(table, [vllm(config, tp=degree, ep=degree, rank=rank) for rank in range(degree)], config)
    check_exact(table, [sglang(config, tp=degree, ep=degree, rank=rank) for rank in range(degree)], config)


@pytest.mark.parametrize("degree", [1, 2, 4, 8])
@pytest.mark.parametrize("name", MIXTURES)
def test_cut_experts_under_tensor_parallelism(name: str, degree: int) -> None:
    config = {**MIXTURES[name], "num_hidden_layers": 2}
    table = table_of(config, "tp")
    check_exact(table, [vllm(config, tp=degree, rank=rank) for rank in range(degree)], config)
    check_exact(
        table, [sglang(config, tp=degree, rank=rank, experts="transposed") for rank in range(degree)], config
    )


def test_more_ranks_than_slabs_meet_more_than_they_hold_but_not_other_slabs() -> None:
    config = {**configs.QWEN3_8B, "num_hidden_layers": 2}
    table = table_of(config)
    for rank in range(16):
        layout = vllm(config, tp=16, rank=rank)
        met, slabs = elements_met(table, layout)
        assert layout.elements < met <= 2 * layout.elements
        assert slabs == {0, 1 + rank // 2}
