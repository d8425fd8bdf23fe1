"""Layouts of transformers' models against its own modules, and its own way to save them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from deltastore.demo.model import require_libraries
from deltastore.errors import InputError
from deltastore.format.dtypes import DTYPES
from deltastore.format.table import TensorSpec
from deltastore.layout.families import model_of
from deltastore.layout.laid_parts import parts_of
from deltastore.layout.planning import check_world
from deltastore.layout.trainers.transformers import identity, transformers
from tests.layout.reassembling import unique_ids

from .small import CONFIGS, filled

MODELS = ["llama", "qwen2-tied", "qwen3", "qwen3-moe", "deepseek"]


def built(name: str, **changes: Any) -> Any:
    """The model as transformers makes it from its configuration."""
    require_libraries()
    import transformers as library

    fields: dict[str, Any] = {**CONFIGS[name], "num_experts_per_tok": 2, "num_nextn_predict_layers": 0}
    (architecture,) = fields.pop("architectures")
    if name == "deepseek":
        fields |= {"n_group": 2, "topk_group": 1, "tie_word_embeddings": False}
    if name == "qwen3-moe":
        fields |= {"tie_word_embeddings": False}
    fields |= changes
    torch.manual_seed(1)
    config = getattr(library, architecture.replace("ForCausalLM", "Config"))(**fields)
    return getattr(library, architecture)._from_config(config, dtype=torch.float32)


def held_by(model: Any) -> dict[str, torch.Tensor]:
    """Parameters, and the buffers that a checkpoint has."""
    held = dict(itertools.chain(model.named_parameters(), model.named_buffers()))
    return {name: tensor for name, tensor in held.items() if "rotary_emb" not in name}


@pytest.mark.parametrize("name", MODELS)
def test_parts_of_its_parameters_are_the_tensors_that_it_saves(name: str, tmp_path: Path) -> None:
    """By the configuration that it writes beside them; of experts that says ``num_local_experts``."""
    model = built(name)
    with torch.no_grad():
        for number, tensor in enumerate(held_by(model).values()):
            tensor.copy_(torch.arange(tensor.numel()).reshape(tensor.shape) + (number << 15))
    model.save_pretrained(tmp_path)
    layout = transformers(tmp_path)
    held = held_by(model)
    shapes = {key: tuple(tensor.shape) for key, tensor in held.items()}
    assert {param.name: param.shape for param in layout.params} == shapes
    parts = parts_of(layout, held)
    saved = load_file(tmp_path / "model.safetensors")
    assert parts.keys() == saved.keys()
    for saved_name, (part,) in parts.items():
        assert part.start == (0,) * len(part.shape)
        assert torch.equal(part.tensor, saved[saved_name])
        assert {part.tensor.untyped_storage().data_ptr()} <= {
            one.untyped_storage().data_ptr() for one in held.values()
        }


@pytest.mark.parametrize("name", MODELS)
def test_all_of_a_model_once_stacked_or_not(name: str) -> None:
    model = model_of(CONFIGS[name])
    ids = unique_ids(model.tensors())
    stacked, separate = transformers(model), transformers(model, experts="separate")
    check_world([stacked])
    check_world([separate])
    for tensor, array in filled(separate, ids).items():
        assert np.array_equal(array, ids[tensor])
    assert stacked.ties == separate.ties == model.aliases


def test_stacked_experts_are_gates_above_the_others() -> None:
    layout = transformers(CONFIGS["qwen3-moe"])
    ids = unique_ids(layout.tensors)
    stacked = filled(layout, ids)["model.layers.2.mlp.experts.gate_up_proj"]
    of = "model.layers.2.mlp.experts.3"
    assert np.array_equal(stacked[3, :16], ids[f"{of}.gate_proj.weight"])
    assert np.array_equal(stacked[3, 16:], ids[f"{of}.up_proj.weight"])
    assert not any(".experts." in name for name in layout.forms if ".layers.1." in name)


def test_identity_is_of_any_tensors() -> None:
    tensors = [TensorSpec("a.b", (3, 4), DTYPES["BF16"]), TensorSpec("scale", (), DTYPES["F32"])]
    layout = identity(tensors)
    check_world([layout])
    ids = unique_ids(tensors)
    assert all(np.array_equal(array, ids[name]) for name, array in filled(layout, ids).items())


def test_experts_are_held_in_one_of_two_ways() -> None:
    with pytest.raises(InputError, match="experts are 'stacked' or 'separate', not 'fused'"):
        transformers(CONFIGS["qwen3-moe"], experts="fused")  # type: ignore[arg-type]
