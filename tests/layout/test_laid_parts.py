"""Parameters as a trainer has them become parts of tensors: whole, cut, flat, distributed; or are refused."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from deltastore.errors import InputError
from deltastore.format.dtypes import DTYPES
from deltastore.format.table import TensorSpec
from deltastore.layout.drawing import Drawing
from deltastore.layout.laid_parts import FlatRun, Params, parts_of, watched
from deltastore.layout.parts import Part
from deltastore.layout.pieces import Layout
from deltastore.layout.trainers.megatron import megatron
from deltastore.layout.trainers.transformers import transformers
from tests.layout.reassembling import unique_ids
from tests.layout.trainers.small import CONFIGS, Ids, add_published, filled

LEGACY = {"experts": "legacy", "vocab_multiple": 16}


def layouts() -> list[Layout]:
    return [
        transformers(CONFIGS["qwen3-moe"]),
        megatron(CONFIGS["qwen3-moe"], **LEGACY),  # type: ignore[arg-type]
        megatron(CONFIGS["qwen2-tied"], vocab_multiple=16),
    ]


def of_everything(params: Ids, random: np.random.Generator) -> Params:
    return params


def as_rows(params: Ids, random: np.random.Generator) -> Params:
    """Each in up to three parts along its first axis."""
    told = {}
    for name, array in params.items():
        cuts = [0, *sorted(random.integers(0, len(array) + 1, 2)), len(array)]
        told[name] = [
            Part(array[low:high], array.shape, (int(low), *(0 for _ in array.shape[1:])))
            for low, high in pairwise(cuts)
        ]
    return told


def as_runs(params: Ids, random: np.random.Generator) -> Params:
    """Each in up to five runs of its elements, which begin anywhere; as a distributed optimizer has them."""
    told = {}
    for name, array in params.items():
        cuts = [0, *sorted(random.integers(0, array.size + 1, 4)), array.size]
        flat = array.reshape(-1)
        told[name] = tuple(FlatRun(flat[low:high], int(low)) for low, high in pairwise(cuts))
    return told


def in_torch(params: Ids, random: np.random.Generator) -> Params:
    """As torch parameters, some as parts and some as runs."""
    told: dict[str, Any] = {}
    for number, (name, array) in enumerate(params.items()):
        tensor = torch.from_numpy(array)
        cut = int(random.integers(0, array.size + 1))
        flat = tensor.reshape(-1)
        told[name] = tensor if number % 2 else [FlatRun(flat[cut:], cut), FlatRun(flat[:cut], 0)]
    return told


@pytest.mark.parametrize("cut", [of_everything, as_rows, as_runs, in_torch])
def test_each_element_is_published_once_from_where_it_stands(
    cut: Callable[[Ids, np.random.Generator], Params],
) -> None:
    random = np.random.default_rng(1)
    for layout in layouts():
        ids = unique_ids(layout.tensors)
        published = {name: np.zeros_like(array) for name, array in ids.items()}
        add_published(layout, cut(filled(layout, ids), random), published)
        assert [name for name in ids if not np.array_equal(published[name], ids[name])] == []


def test_parts_are_the_parameters_memory() -> None:
    layout = megatron(CONFIGS["qwen3-moe"], **LEGACY)  # type: ignore[arg-type]
    params = {
        param.name: np.zeros(param.shape, np.uint32 if param.dtype.name == "F32" else ml_dtypes.bfloat16)
        for param in layout.params
    }
    for parts in parts_of(layout, params).values():
        for part in parts:
            part.tensor[...] = 1
    for param in layout.params:
        padded = sum(hole.size[0] * hole.size[1] for hole in layout.holes if hole.param == param.name)
        assert int((params[param.name] == 1).sum()) == param.elements - padded


def test_pieces_of_other_replicas_are_not_published() -> None:
    layout = megatron(CONFIGS["llama"], tp=2, tp_rank=1, vocab_multiple=1)
    ids = unique_ids(layout.tensors)
    published = {name: np.zeros_like(array) for name, array in ids.items()}
    add_published(layout, filled(layout, ids), published)
    assert not published["model.norm.weight"].any()
    assert published["model.layers.0.mlp.up_proj.weight"][24:].all()
    assert not published["model.layers.0.mlp.up_proj.weight"][:24].any()


BF16 = np.dtype(ml_dtypes.bfloat16)


def small() -> Layout:
    """A fused parameter, one that is seen in another shape, a scalar, and a tied name."""
    tensors = [
        TensorSpec("a", (2, 4), DTYPES["BF16"]),
        TensorSpec("b", (3, 4), DTYPES["BF16"]),
        TensorSpec("c", (4, 6), DTYPES["BF16"]),
        TensorSpec("scale", (), DTYPES["F32"]),
    ]
    drawing = Drawing("small", tensors)
    fused = drawing.param("fused", (5, 4), DTYPES["BF16"])
    drawing.place(tensors[0], fused)
    drawing.place(tensors[1], fused, at=(2, 0))
    seen = drawing.param("seen", (4, 6), DTYPES["BF16"], view=(6, 4))
    drawing.place(tensors[2], seen, axes=(1, 0))
    drawing.whole(tensors[3])
    drawing.tie("head", to="fused")
    return drawing.done()


def arrays() -> dict[str, Any]:
    return {
        "fused": np.zeros((5, 4), BF16),
        "seen": np.zeros((4, 6), BF16),
        "scale": np.zeros((), np.float32),
    }


def test_a_scalar_and_what_is_seen_in_another_shape() -> None:
    params = arrays()
    params["seen"][...] = np.arange(24).reshape(4, 6)
    parts = parts_of(small(), params)
    assert [part.start for part in parts["b"]] == [(0, 0)]
    assert parts["scale"][0].tensor.shape == ()
    assert np.array_equal(parts["c"][0].tensor, np.arange(24).reshape(6, 4).T.astype(BF16))
    parts["scale"][0].tensor[...] = 2
    assert params["scale"] == 2


@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        (
            {"fused": None},
            "missing_tensor",
            "parameter 'fused' of layout small is not given: 2 of 3 are there",
        ),
        ({"more": np.zeros(3)}, "unknown_tensor", "layout small has no parameter 'more': leave it out"),
        (
            {"fused": np.zeros((4, 5), BF16)},
            "wrong_shape",
            "parameter 'fused' is [4, 5] where its layout has [5, 4]",
        ),
        (
            {"fused": Part(np.zeros((1, 4), BF16), (6, 4), (0, 0))},
            "wrong_shape",
            "parameter 'fused' is a part of one of shape [6, 4] where its layout has [5, 4]",
        ),
        (
            {"fused": [FlatRun(np.zeros(3, BF16), 18)]},
            "wrong_shape",
            "parameter 'fused' of shape [5, 4] has no run of [3] elements from index 18",
        ),
        (
            {"fused": np.zeros((5, 4), np.float32)},
            "wrong_dtype",
            "parameter 'fused' is F32 where its layout has BF16; cast it (cast=True does, from F32)",
        ),
        (
            {"scale": np.zeros((), np.int32)},
            "wrong_dtype",
            "parameter 'scale' is I32 where its layout has F32",
        ),
        (
            {"seen": np.zeros((6, 4), BF16).T},
            "wrong_memory",
            "parameter 'seen' of shape [4, 6] is seen as [6, 4]: its [4, 6] elements must be whole rows",
        ),
        (
            {"seen": torch.zeros(6, 4, dtype=torch.bfloat16).T},
            "wrong_memory",
            "parameter 'seen' of shape [4, 6] is seen as [6, 4]: its [4, 6] elements must be whole rows",
        ),
        (
            {"seen": Part(np.zeros((4, 2), BF16), (4, 6), (0, 4))},
            "wrong_memory",
            "its [4, 2] elements must be whole rows, contiguous in memory",
        ),
        ({"fused": FlatRun(np.zeros(8, BF16)[::2], 0)}, "wrong_memory", "'fused': a run must be contiguous"),
        (
            {"fused": [np.zeros((5, 4), BF16)]},
            "bad_argument",
            "'fused': give a tensor, or a sequence of Part",
        ),
        ({"fused": "weights"}, "wrong_memory", "tensor 'fused' is a str, not a NumPy array or torch tensor"),
        (
            {"head": np.zeros((5, 4), BF16)},
            "wrong_memory",
            "parameter 'head' is not the memory of 'fused', to which it is tied in layout small",
        ),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, Any], code: str, said: str) -> None:
    params = {name: value for name, value in {**arrays(), **change}.items() if value is not None}
    with pytest.raises(InputError) as caught:
        parts_of(small(), params)
    assert caught.value.code == code
    assert said in str(caught.value)


def test_masters_stand_for_what_is_narrower_if_told() -> None:
    params = {name: value.astype(np.float32) for name, value in arrays().items()}
    assert parts_of(small(), params, cast=True).keys() == {"a", "b", "c", "scale"}


def test_a_tied_name_may_stand_for_the_other_or_be_given_too() -> None:
    params = arrays()
    weight = params.pop("fused")
    assert parts_of(small(), {**params, "head": weight})["a"][0].tensor.base is not None
    parts_of(small(), {**params, "head": weight, "fused": weight})
    tensor = torch.zeros(5, 4, dtype=torch.bfloat16)
    parts_of(small(), {**params, "head": tensor.view(5, 4), "fused": tensor})


def test_nothing_is_held_where_nothing_is_given() -> None:
    assert parts_of(small(), {"fused": (), "seen": (), "scale": ()}) == {}


def test_parts_of_torch_parameters_are_views_of_them() -> None:
    """So that whoever gives a parameter other memory is noticed."""
    params = {name: torch.nn.Parameter(torch.zeros(value.shape)) for name, value in arrays().items()}
    params["seen"] = torch.nn.Parameter(torch.zeros(4, 6))
    for parts in parts_of(small(), params, cast=True).values():
        assert all(part.tensor.untyped_storage().size() for part in parts)
    assert [name for name, _ in watched(params)] == ["fused", "seen", "scale"]
    assert [tensor() for _, tensor in watched(params)] == list(params.values())
