"""The aligned grid: whatever an engine's process needs is whole chunks, in slabs of its own."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltastore.format.dtypes import DTYPES
from deltastore.format.table import TensorSpec, TensorTable
from deltastore.layout.cuts import Experts, cuts_of
from deltastore.layout.cutting import plain_table
from deltastore.layout.families import model_of
from deltastore.layout.slabs import SMALL_CHUNK, slab_table
from tests.doubles import configs
from tests.layout.whole_chunks import (
    Config,
    check_chunks,
    check_expert_parallel,
    check_tensor_parallel,
    divisors,
)

REAL = {
    "qwen3-8b": configs.QWEN3_8B,
    "qwen3-30b": configs.QWEN3_30B,
    "llama-3-8b": configs.LLAMA_3_8B,
    "llama-3-70b": configs.LLAMA_3_70B,
    "llama-3.2-1b-tied": configs.LLAMA_3_2_1B,
    "qwen3-235b": configs.QWEN3_235B,
    "deepseek": configs.DEEPSEEK,
    "qwen2-odd-tied": configs.QWEN2_ODD,
}


def table_for(config: Config, slabs: int, moe: Experts = "ep") -> TensorTable:
    model = model_of(config)
    return slab_table(model, model.tensors(), slabs=slabs, moe=moe)


@pytest.mark.parametrize("moe", ["ep", "tp"])
@pytest.mark.parametrize("slabs", [1, 8])
@pytest.mark.parametrize("name", REAL)
def test_shards_of_real_models_are_whole_chunks_in_their_own_slabs(
    name: str, slabs: int, moe: Experts
) -> None:
    config = REAL[name]
    mixture = bool(config.get("num_experts") or config.get("n_routed_experts"))
    if slabs == 1 or (moe == "tp" and not mixture):
        config = {**config, "num_hidden_layers": 4}
    table = table_for(config, slabs, moe)
    assert table.slabs == slabs
    check_chunks(table)
    for degree in divisors(slabs):
        assert check_tensor_parallel(config, table, degree, experts=moe == "tp") >= degree
        if mixture and moe == "ep":
            assert check_expert_parallel(config, table, degree) == 3


@pytest.mark.parametrize("name", ["qwen3-8b", "llama-3-70b", "qwen3-30b", "deepseek"])
def test_every_degree_up_to_sixteen_slabs(name: str) -> None:
    config = {**REAL[name], "num_hidden_layers": 4}
    table = table_for(config, 16, "tp")
    for degree in divisors(16):
        assert check_tensor_parallel(config, table, degree, experts=True) > 4 * degree


@pytest.mark.parametrize(
    ("name", "moe", "cells"),
    [
        ("qwen3-8b", "ep", 2177),
        ("llama-3-8b", "ep", 1873),
        ("qwen3-30b", "ep", 19841),
        ("qwen3-30b", "tp", 148865),
    ],
)
def test_numbers_of_cells(name: str, moe: Experts, cells: int) -> None:
    cuts = cuts_of(model_of(REAL[name]), 8, moe)
    assert (
        sum(-(-spec.shape[cut.axis] // cut.cell) if cut.cell else 1 for spec, cut in cuts.values()) == cells
    )


@pytest.mark.parametrize("moe", ["ep", "tp"])
@pytest.mark.parametrize("name", ["qwen3-8b", "qwen3-30b", "llama-3-70b", "qwen3-235b", "deepseek"])
def test_chunks_of_large_matrices_are_neither_small_nor_slivers(name: str, moe: Experts) -> None:
    for array in table_for({**REAL[name], "num_hidden_layers": 5}, 8, moe).arrays:
        if len(array.shape) == 2 and math.prod((array.count, *array.shape)) >= 8 * SMALL_CHUNK:
            assert math.prod(array.chunk) >= SMALL_CHUNK, array.pattern
            assert array.chunk[2] >= min(array.shape[1], 96), array.pattern


def test_experts_cut_for_tensor_parallelism_share_chunks_within_a_layer() -> None:
    table = table_for(configs.QWEN3_30B, 8, "tp")
    arrays = [array for array in table.arrays if ".experts." in array.pattern]
    assert [array.chunk for array in arrays] == [(2, 2048, 96), (2, 96, 2048), (2, 96, 2048)]
    small = {**configs.QWEN3_30B, "num_hidden_layers": 3, "num_experts": 6, "hidden_size": 64}
    for array in table_for(small, 8, "tp").arrays:
        if ".experts." in array.pattern:
            assert array.chunk[0] == 6


def test_an_expert_of_another_type_keeps_layers_apart() -> None:
    model = model_of({**configs.QWEN3_30B, "num_hidden_layers": 2})
    odd = "model.layers.0.mlp.experts.5.up_proj.weight"
    tensors = [
        dataclasses.replace(spec, dtype=DTYPES["F32"]) if spec.name == odd else spec
        for spec in model.tensors()
    ]
    table = slab_table(model, tensors, slabs=8, moe="tp")
    ups = [array for array in table.arrays if array.pattern.endswith("experts.*.up_proj.weight")]
    assert [(array.dtype, array.count, array.chunk[0]) for array in ups] == [("BF16", 255, 1), ("F32", 1, 1)]


def test_the_order_of_tensors_is_no_matter() -> None:
    model = model_of({**configs.QWEN3_30B, "num_hidden_layers": 3})
    tensors = list(model.tensors())
    first = slab_table(model, tensors, slabs=8)
    random.Random(3).shuffle(tensors)
    assert slab_table(model, tensors, slabs=8).sha256 == first.sha256
    assert TensorTable.from_bytes(first.to_bytes(), "table") == first


def test_no_slabs_are_the_plain_grid() -> None:
    model = model_of(configs.QWEN2_ODD)
    assert slab_table(model, model.tensors(), slabs=0) == plain_table(model.tensors())


def test_extra_layers_that_no_engine_holds_are_cut_as_their_like() -> None:
    config = {**configs.DEEPSEEK, "num_hidden_layers": 4}
    model = model_of(config)
    ahead = [
        dataclasses.replace(spec, name=spec.name.replace("layers.3.", "layers.4."))
        for spec in model.layers[3].tensors()
    ]
    ahead.append(TensorSpec("model.layers.4.eh_proj.weight", (7168, 14336), DTYPES["BF16"]))
    table = slab_table(model, [*model.tensors(), *ahead], slabs=8, moe="tp")
    array, member = table.places["model.layers.4.mlp.experts.0.up_proj.weight"]
    assert (table.arrays[array].count, member) == (512, 256)
    own = table.arrays[table.places["model.layers.4.eh_proj.weight"][0]]
    assert own.slab.by == "common"
    for degree in (2, 4, 8):
        check_tensor_parallel(config, table, degree, experts=True)


def test_a_checkpoint_with_a_head_of_its_own_though_it_is_tied() -> None:
    model = model_of(configs.QWEN2_ODD)
    table = slab_table(model, [*model.tensors(), model.head], slabs=8)
    head, embedding = (table.arrays[table.places[spec.name][0]] for spec in (model.head, model.embedding))
    assert (head.chunk, head.slab) == (embedding.chunk, embedding.slab)


@st.composite
def any_config(draw: st.DrawFn) -> tuple[Config, int]:
    slabs = draw(st.integers(1, 24))
    kv_heads = draw(st.integers(1, 12))
    config = configs.decoder(
        "Qwen3MoeForCausalLM",
        draw(st.integers(1, 3000)),
        draw(st.integers(1, 5)),
        kv_heads * draw(st.integers(1, 6)),
        kv_heads,
        draw(st.integers(1, 9000)),
        draw(st.integers(64 * slabs, 200_000)),
        head_dim=draw(st.sampled_from([1, 3, 64, 96, 128])),
        num_experts=draw(st.integers(0, 12)),
        moe_intermediate_size=draw(st.integers(1, 3000)),
        mlp_only_layers=draw(st.lists(st.integers(0, 4), max_size=2)),
        tie_word_embeddings=draw(st.booleans()),
        attention_bias=draw(st.booleans()),
    )
    return config, slabs


@settings(max_examples=60, deadline=None, derandomize=True)
@given(any_config(), st.sampled_from(["ep", "tp"]))
def test_shards_of_any_model(drawn: tuple[Config, int], moe: Experts) -> None:
    config, slabs = drawn
    table = table_for(config, slabs, moe)
    check_chunks(table)
    for degree in divisors(slabs):
        check_tensor_parallel(config, table, degree, experts=moe == "tp")
        if moe == "ep" and config["num_experts"] and config["num_experts"] % degree == 0:
            check_expert_parallel(config, table, degree)
