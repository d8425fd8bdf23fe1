"""Tables of very large models: few arrays, small objects, memory in proportion."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from itertools import product

import numpy as np

from deltastore.format.dtypes import DTYPES
from deltastore.format.limits import TABLE_BYTES
from deltastore.format.pack import PackBuilder, PackIndex
from deltastore.format.patch import encode_patch
from deltastore.format.table import TensorSpec, TensorTable
from deltastore.layout.cutting import plain_table

BF16, F32 = DTYPES["BF16"], DTYPES["F32"]
MEBI = 1 << 20


def moe_30b() -> Iterator[TensorSpec]:
    """The 18,867 tensors of a mixture of experts: 48 layers, 128 experts, hidden size 2048."""
    yield TensorSpec("model.embed_tokens.weight", (151_936, 2048), BF16)
    yield TensorSpec("lm_head.weight", (151_936, 2048), BF16)
    yield TensorSpec("model.norm.weight", (2048,), BF16)
    for layer in range(48):
        at = f"model.layers.{layer}"
        for part, rows in (("q", 4096), ("k", 512), ("v", 512)):
            yield TensorSpec(f"{at}.self_attn.{part}_proj.weight", (rows, 2048), BF16)
        yield TensorSpec(f"{at}.self_attn.o_proj.weight", (2048, 4096), BF16)
        for part in ("q", "k"):
            yield TensorSpec(f"{at}.self_attn.{part}_norm.weight", (128,), BF16)
        for part in ("input", "post_attention"):
            yield TensorSpec(f"{at}.{part}_layernorm.weight", (2048,), BF16)
        yield TensorSpec(f"{at}.mlp.gate.weight", (128, 2048), BF16)
        for expert, part in product(range(128), ("gate", "up", "down")):
            shape = (2048, 768) if part == "down" else (768, 2048)
            yield TensorSpec(f"{at}.mlp.experts.{expert}.{part}_proj.weight", shape, BF16)


def test_a_30b_mixture_of_experts_is_fifteen_arrays() -> None:
    specs = list(moe_30b())
    assert len(specs) == 18_867
    made = plain_table(specs)
    assert len(made.arrays) == 15
    assert len(made.to_bytes()) < 4096
    assert made.elements == 30_532_122_624
    assert len(made.places) == 18_867
    gate = made.arrays[made.places["model.layers.47.mlp.experts.127.gate_proj.weight"][0]]
    assert gate.members == (((0, 48), (0, 128)),)
    assert TensorTable.from_bytes(made.to_bytes(), "table").sha256 == made.sha256
    assert len(made.chunk_order()) == sum(len(one.grid) for one in made.arrays)


def test_200_000_tensors_with_holes() -> None:
    """200 layers of 1000 experts from which pruning took an uneven 2 %, and scales of some of them."""
    rng = np.random.default_rng(5)
    experts = [(layer, expert) for layer in range(200) for expert in range(1000)]
    kept = [experts[at] for at in np.flatnonzero(rng.random(len(experts)) < 0.98)]
    specs = [TensorSpec(f"model.layers.{i}.mlp.experts.{j}.w1.weight", (768, 2048), BF16) for i, j in kept]
    specs += [TensorSpec(f"model.layers.{i}.mlp.experts.{j}.w1.scale", (6, 16), F32) for i, j in kept[:5000]]
    assert len(specs) > 200_000
    made = plain_table(specs)
    data = made.to_bytes()
    assert len(made.arrays) == 2
    assert len(data) < MEBI < TABLE_BYTES
    tracemalloc.start()
    try:
        again = TensorTable.from_bytes(data, "table")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert again.sha256 == made.sha256
    assert again.places == made.places
    assert peak < 200 * MEBI


def test_names_without_numbers() -> None:
    """The worst case: every tensor an array of its own, and a pack with a patch for each."""
    count = 3000
    names = sorted(f"model.block_{at:05d}.attention.projection.weight" for at in range(count))
    made = plain_table(TensorSpec(name, (16,), BF16) for name in names)
    assert len(made.arrays) == count
    assert len(made.to_bytes()) < 200 * count < TABLE_BYTES * count // 200_000
    one = np.ones(1, "<u2")
    patch = encode_patch(BF16, 16, np.zeros(1, np.uint32), one - one, one, None)
    builder = PackBuilder(1, bytes(16))
    for number in range(count):
        builder.add(0, number, 0, patch, 1)
    index = PackIndex.parse(builder.finish().data, made, "pack")
    assert index.rows["array"].tolist() == list(range(count))
