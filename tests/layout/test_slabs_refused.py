"""Checkpoints that are not of the model that a configuration describes get no aligned grid."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from deltastore.errors import InputError
from deltastore.format.dtypes import DTYPES
from deltastore.format.table import TensorSpec
from deltastore.layout.families import model_of
from deltastore.layout.grids import chosen_grid
from deltastore.layout.slabs import slab_table
from tests.doubles import configs


class TestWhatIsNotTheModels:
    """One error, which names the tensor and the numbers."""

    def refusal(self, tensors: list[TensorSpec], **options: Any) -> InputError:
        with pytest.raises(InputError) as caught:
            slab_table(model_of(configs.QWEN3_0_6B), tensors, **{"slabs": 8, **options})
        return caught.value

    def tensors(self) -> list[TensorSpec]:
        return list(model_of(configs.QWEN3_0_6B).tensors())

    def test_a_shape(self) -> None:
        tensors = self.tensors()
        name = "model.layers.3.self_attn.k_proj.weight"
        number = next(at for at, spec in enumerate(tensors) if spec.name == name)
        tensors[number] = dataclasses.replace(tensors[number], shape=(1025, 1024))
        error = self.refusal(tensors)
        assert (error.code, error.where) == ("wrong_shape", name)
        assert "[1025, 1024]" in str(error)
        assert "[1024, 1024]" in str(error)

    def test_a_name(self) -> None:
        tensors = [
            *self.tensors(),
            TensorSpec("model.layers.28.input_layernorm.weight", (1024,), DTYPES["BF16"]),
        ]
        assert self.refusal(tensors).code == "unknown_tensor"

    def test_one_too_few(self) -> None:
        error = self.refusal(self.tensors()[:-1])
        assert (error.code, error.where) == ("missing_tensor", "model.norm.weight")
        assert "[1024]" in str(error)

    def test_one_twice(self) -> None:
        tensors = self.tensors()
        assert self.refusal([*tensors, tensors[5]]).code == "bad_argument"

    @pytest.mark.parametrize("options", [{"slabs": -1}, {"slabs": 4097}, {"slabs": True}, {"moe": "dp"}])
    def test_numbers_out_of_range(self, options: dict[str, Any]) -> None:
        assert self.refusal(self.tensors(), **options).code == "bad_argument"


def test_experts_of_a_model_that_has_none_are_not_cut() -> None:
    dense, mixture = configs.QWEN3_0_6B, {**configs.QWEN3_30B, "num_hidden_layers": 2}
    with pytest.raises(
        InputError, match="a qwen3 model has no experts that could be cut: leave moe"
    ) as caught:
        chosen_grid(model_of(dense).tensors(), dense, slabs=8, moe="tp")
    assert caught.value.code == "bad_argument"
    assert chosen_grid(model_of(dense).tensors(), dense, slabs=8, moe=None).moe is None
    assert chosen_grid(model_of(mixture).tensors(), mixture, slabs=8, moe="tp").moe == "tp"


def test_an_extra_layer_with_more_experts_than_the_model_has() -> None:
    model = model_of({**configs.DEEPSEEK, "num_hidden_layers": 4})
    ahead = dataclasses.replace(
        next(model.layers[3].mlp.tensors()),
        name="model.layers.4.mlp.experts.256.up_proj.weight",
        shape=(2048, 7168),
    )
    with pytest.raises(InputError) as caught:
        slab_table(model, [*model.tensors(), ahead], slabs=8)
    assert caught.value.code == "bad_argument"
