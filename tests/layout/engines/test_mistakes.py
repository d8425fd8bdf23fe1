"""Mistakes that integrations have made, each of which gives parameters of the right shape or size."""

from __future__ import annotations

import numpy as np
import pytest

from deltastore.errors import InputError
from deltastore.layout.engines import sglang, vllm
from deltastore.layout.families import model_of
from deltastore.layout.pieces import Layout
from tests.doubles.configs import REAL, SMALL, with_layers
from tests.layout.reassembling import Ids, held, reassemble, unique_ids

ATTENTION = "model.layers.0.self_attn"
ENGINES = (vllm, sglang)


def rows_of(layout: Layout, tensor: str) -> tuple[int, int, int]:
    """First row in the tensor, first row in the parameter, and number of rows, of the one piece."""
    (piece,) = layout.of_tensor[tensor]
    return piece.lo[0], piece.at[0], piece.size[0]


@pytest.mark.parametrize("engine", ENGINES)
def test_queries_keys_and_values_are_no_equal_thirds(engine: type) -> None:
    """A converter cut qkv_proj of grouped-query attention into three equal parts."""
    layout = engine(with_layers(REAL["Qwen3-8B"], 1), tp=4, rank=1)
    assert layout.forms[f"{ATTENTION}.qkv_proj.weight"].shape[0] == 1536
    assert rows_of(layout, f"{ATTENTION}.q_proj.weight") == (1024, 0, 1024)
    assert rows_of(layout, f"{ATTENTION}.k_proj.weight") == (256, 1024, 256)
    assert rows_of(layout, f"{ATTENTION}.v_proj.weight") == (256, 1280, 256)


@pytest.mark.parametrize("engine", ENGINES)
def test_query_rows_do_not_follow_from_the_ratio_of_heads(engine: type) -> None:
    """With key heads copied, a floor division of 768 rows by the ratio gave 614 query rows; it is 512."""
    layout = engine(with_layers(REAL["Qwen3-30B-A3B"], 1), tp=8, rank=5)
    assert layout.forms[f"{ATTENTION}.qkv_proj.weight"].shape[0] == 768
    assert rows_of(layout, f"{ATTENTION}.q_proj.weight") == (5 * 512, 0, 512)
    assert rows_of(layout, f"{ATTENTION}.k_proj.weight") == (2 * 128, 512, 128)
    assert rows_of(layout, f"{ATTENTION}.v_proj.weight") == (2 * 128, 640, 128)


def test_copies_of_a_key_head_are_numbered() -> None:
    """Every rank said that it holds the only copy, and each element was sent once per copy."""
    config = with_layers(REAL["Qwen3-30B-A3B"], 1)
    for engine in ENGINES:
        found = [
            engine(config, tp=16, rank=rank).of_tensor[f"{ATTENTION}.k_proj.weight"] for rank in range(16)
        ]
        assert [(one.lo[0] // 128, one.replica) for (one,) in found] == [(t // 4, t % 4) for t in range(16)]


@pytest.mark.parametrize("engine", ENGINES)
def test_gate_and_up_of_experts_are_not_swapped(engine: type) -> None:
    """A kernel that wants up first had gate written there: the shape is the same, and so is every sum."""
    ids = unique_ids(model_of(SMALL["qwen3-moe"]).tensors())
    layouts = {name: engine(SMALL["qwen3-moe"], experts=name) for name in ("standard", "up_first")}
    memory = {name: held(layout, ids) for name, layout in layouts.items()}
    swapped = reassemble([layouts["standard"]], [memory["up_first"]])
    for expert in range(16):
        prefix = f"model.layers.0.mlp.experts.{expert}"
        assert np.array_equal(swapped[f"{prefix}.gate_proj.weight"], ids[f"{prefix}.up_proj.weight"])
        assert np.array_equal(swapped[f"{prefix}.up_proj.weight"], ids[f"{prefix}.gate_proj.weight"])
    right = reassemble([layouts["up_first"]], [memory["up_first"]])
    assert all(np.array_equal(right[name], ids[name]) for name in ids)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("tp", [1, 4])
def test_transposed_experts_are_transposed_once(engine: type, tp: int) -> None:
    """A fused up projection was transposed twice; where a slot is not square, halves tell."""
    ids = unique_ids(model_of(SMALL["qwen3-moe"]).tensors())
    layout = engine(SMALL["qwen3-moe"], tp=tp, rank=tp - 1, experts="transposed")
    part = 32 // tp
    prefix = "model.layers.0.mlp.experts"
    (into,) = (data for name, data in held(layout, ids).items() if name.startswith(prefix) and "w13" in name)
    assert into.shape == (16, 24, 2 * part)
    for expert in range(16):
        for half, name in ((into[expert, :, :part], "gate"), (into[expert, :, part:], "up")):
            assert np.array_equal(half, ids[f"{prefix}.{expert}.{name}_proj.weight"][-part:].T)


@pytest.mark.parametrize("engine", ENGINES)
def test_padding_of_the_vocabulary_is_no_row_of_the_model(engine: type) -> None:
    """Padding rows were exported with the model. 151,937 rows are padded to 152,000, 19,000 to a rank."""
    config = {**with_layers(REAL["Qwen3-8B"], 1), "vocab_size": 151_937}
    rows = 0
    for rank in range(8):
        layout = engine(config, tp=8, rank=rank)
        for name in ("model.embed_tokens.weight", "lm_head.weight"):
            (piece,) = layout.of_tensor[name]
            assert (piece.lo[0], piece.at[0]) == (19_000 * rank, 0)
            assert piece.lo[0] + piece.size[0] <= 151_937
            holes = [hole for hole in layout.holes if hole.param == name]
            assert [(hole.at[0], hole.size[0]) for hole in holes] == ([(18_937, 63)] if rank == 7 else [])
            rows += piece.size[0]
    assert rows == 2 * 151_937


@pytest.mark.parametrize("engine", ENGINES)
def test_a_rank_may_have_nothing_but_padding(engine: type) -> None:
    layout = engine(SMALL["llama"], tp=16, rank=15)
    assert "lm_head.weight" not in layout.of_param
    assert [hole.size for hole in layout.holes] == [(8, 24), (8, 24)]


def slots(layout: Layout) -> list[int]:
    """Number of the expert in each slot of layer 0."""
    found = {
        piece.at[0]: int(piece.tensor.split(".")[5])
        for piece in layout.pieces
        if piece.param.startswith("model.layers.0.mlp.experts.") and piece.param.endswith(".w2_weight")
    }
    return [found[slot] for slot in range(len(found))]


def test_slots_of_experts_have_numbers_of_the_whole_model() -> None:
    """Under expert parallelism, slot 0 of every rank was called expert 0."""
    config = with_layers(REAL["Qwen3-30B-A3B"], 1)
    assert slots(vllm(config, tp=8, ep=8, rank=3)) == list(range(48, 64))
    assert slots(sglang(config, tp=8, ep=4, rank=3)) == list(range(32, 64))
    uneven = [slots(vllm(config, dp=3, ep=3, rank=rank)) for rank in range(3)]
    assert uneven == [list(range(43)), list(range(43, 86)), list(range(86, 128))]
    strided = [slots(vllm(_all_experts(), dp=3, ep=3, rank=rank, placement="round_robin")) for rank in (0, 2)]
    assert strided == [[0, 3, 6, 9, 12, 15], [2, 5, 8, 11, 14]]


def _all_experts() -> dict[str, object]:
    return {**SMALL["deepseek"], "first_k_dense_replace": 0}


@pytest.mark.parametrize(
    ("engine", "name"), [(vllm, "fused_qkv_a_proj"), (sglang, "fused_qkv_a_proj_with_mqa")]
)
def test_the_merged_way_down_is_whole_and_queries_come_first(engine: type, name: str) -> None:
    """Ranks' parts were packed as [q; kv] of the whole and not as [q_i; kv_i]: the same shape, other rows."""
    ids = unique_ids(model_of(SMALL["deepseek"]).tensors())
    whole = np.concatenate(
        [ids[f"{ATTENTION}.q_a_proj.weight"], ids[f"{ATTENTION}.kv_a_proj_with_mqa.weight"]]
    )
    for tp in (1, 4):
        for rank in range(tp):
            data = held(engine(SMALL["deepseek"], tp=tp, rank=rank), ids)
            assert np.array_equal(data[f"{ATTENTION}.{name}.weight"], whole)


def test_layers_of_a_stage_keep_their_numbers() -> None:
    """A stage counted its own layers from 0. Five layers on two stages: which has three differs."""
    config = with_layers(REAL["Llama-3-8B"], 5)

    def numbers(layout: Layout) -> list[int]:
        return sorted(
            {int(name.split(".")[2]) for name in layout.of_tensor if name.startswith("model.layers.")}
        )

    assert [numbers(vllm(config, pp=2, rank=rank)) for rank in range(2)] == [[0, 1, 2], [3, 4]]
    assert [numbers(sglang(config, pp=2, rank=rank)) for rank in range(2)] == [[0, 1], [2, 3, 4]]
    assert [numbers(vllm(config, pp=4, rank=rank)) for rank in range(4)] == [[0], [1], [2, 3], [4]]
    for layout in (vllm(config, pp=2, rank=1), sglang(config, pp=2, rank=1)):
        assert {piece.param.split(".")[2] for piece in layout.pieces if ".layers." in piece.param} == {
            piece.tensor.split(".")[2] for piece in layout.pieces if ".layers." in piece.tensor
        }


def test_all_degrees_of_expert_parallelism_hold_the_same_model() -> None:
    """Log-probabilities of trainer and engine came apart with the degree."""
    for model in ("qwen3-moe", "deepseek"):
        ids = unique_ids(model_of(SMALL[model]).tensors())
        found: list[bytes] = []
        for ep in (1, 2, 4, 8):
            for world in (
                [sglang(SMALL[model], tp=8, ep=ep, rank=rank) for rank in range(8)],
                [vllm(SMALL[model], tp=ep, ep=ep, rank=rank) for rank in range(ep)],
            ):
                whole = reassemble(world, [held(layout, ids) for layout in world])
                found.append(b"".join(whole[name].tobytes() for name in sorted(whole)))
        assert found == [found[0]] * 8


@pytest.mark.parametrize("engine", ENGINES)
def test_a_tied_head_is_the_memory_of_the_embedding(engine: type) -> None:
    """An update of the embedding did not reach the head, or the head had become a tensor of its own."""
    layout = engine(SMALL["qwen3-tied"], tp=2)
    assert layout.ties == {"lm_head.weight": "model.embed_tokens.weight"}
    assert layout.aliases == {"lm_head.weight": "model.embed_tokens.weight"}
    assert "lm_head.weight" not in layout.forms
    assert layout.param("lm_head.weight").name == "model.embed_tokens.weight"


def test_a_tied_head_on_another_stage_follows_the_embedding() -> None:
    """vLLM keeps the embedding on both ends; SGLang has a parameter for the head, fed by the embedding."""
    last = vllm(SMALL["qwen3-tied"], pp=3, rank=2)
    assert last.ties == {"lm_head.weight": "model.embed_tokens.weight"}
    assert "model.embed_tokens.weight" in last.forms
    assert not vllm(SMALL["qwen3-tied"], pp=3, rank=1).of_tensor.keys() & {"model.embed_tokens.weight"}
    last = sglang(SMALL["qwen3-tied"], pp=3, rank=2)
    assert not last.ties
    (piece,) = last.of_param["lm_head.weight"]
    assert piece.tensor == "model.embed_tokens.weight"
    assert piece.replica > 0


def test_pieces_of_experts_that_are_cut_stay_with_their_rows() -> None:
    """Strides of a cut ``down`` are those of the parameter, not those of the tensor."""
    ids = unique_ids(model_of(SMALL["qwen3-moe"]).tensors())
    layout = sglang(SMALL["qwen3-moe"], tp=4, ep=2, rank=3)
    data: Ids = held(layout, ids)["model.layers.0.mlp.experts.w2_weight"]
    for slot in range(8):
        down = ids[f"model.layers.0.mlp.experts.{8 + slot}.down_proj.weight"]
        assert np.array_equal(data[slot], down[:, 16:])


def test_experts_of_vllm_without_expert_parallelism_are_cut_by_all_engines() -> None:
    """Each of two engines side by side was taken to hold all rows of its experts."""
    config = with_layers(REAL["Qwen3-30B-A3B"], 1)
    layout = vllm(config, tp=2, dp=2, rank=3)
    tensor = "model.layers.0.mlp.experts.7.up_proj.weight"
    (piece,) = layout.of_tensor[tensor]
    assert (piece.lo[0], piece.size[0]) == (3 * 192, 192)
    with pytest.raises(InputError, match="neither 1 nor tp x dp = 4"):
        vllm(config, tp=2, dp=2, ep=2)
