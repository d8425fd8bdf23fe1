"""Configurations that no model has: refused in bounded time and memory, before anything is made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deltastore.errors import InputError
from deltastore.layout.families import known_architectures, model_of
from tests.doubles import configs

Config = dict[str, Any]


class Saved:
    """An object such as the ``transformers`` library's."""

    def __init__(self, fields: Any) -> None:
        self._fields = fields

    def to_dict(self) -> Any:
        return self._fields


def test_a_model_may_be_given_as_a_mapping_an_object_or_itself() -> None:
    model = model_of(configs.QWEN3_8B)
    assert model_of(Saved(configs.QWEN3_8B)) == model
    assert model_of(model) is model


class TestHostile:
    """One clear error, in bounded time and memory, whatever a configuration says."""

    @pytest.mark.parametrize(
        "fields",
        [
            {"num_hidden_layers": 4097},
            {"num_hidden_layers": 10**30},
            {"num_hidden_layers": 0},
            {"num_hidden_layers": "36"},
            {"num_hidden_layers": 3.5},
            {"num_hidden_layers": True},
            {"num_hidden_layers": None},
            {"num_hidden_layers": [36]},
            {"hidden_size": -4096},
            {"hidden_size": 1 << 40},
            {"hidden_size": float("inf")},
            {"hidden_size": float("nan")},
            {"hidden_size": {"a": {"b": {}}}},
            {"hidden_size": 16, "head_dim": None},
            {"num_attention_heads": 33},
            {"num_key_value_heads": 0},
            {"vocab_size": 0},
            {"intermediate_size": None},
            {"architectures": []},
            {"architectures": None},
            {"architectures": "Qwen3ForCausalLM"},
            {"architectures": ["Unknown"] * 64},
            {"architectures": ["Unknown"] * 10_000},
            {"architectures": ["\x1b[31m" * 10_000]},
            {"architectures": [3]},
            {"architectures": ["qwen3forcausallm"]},
            {"dtype": "float8_e4m3fn"},
            {"dtype": "x" * 100_000},
            {"quantization_config": {"quant_method": "fp8"}},
            {"quantization_config": {}},
            {"tie_word_embeddings": "perhaps"},
        ],
    )
    def test_a_dense_model(self, fields: Config) -> None:
        self.refused({**configs.QWEN3_8B, **fields})

    @pytest.mark.parametrize(
        "fields",
        [
            {"num_experts": 1 << 16},
            {"num_experts": 1 << 17},
            {"num_experts": -1},
            {"num_experts": 512, "num_hidden_layers": 4096},
            {"num_experts": None},
            {"moe_intermediate_size": None},
            {"mlp_only_layers": ["0"] * 10_000},
            {"mlp_only_layers": list(range(5000))},
        ],
    )
    def test_a_mixture_of_experts(self, fields: Config) -> None:
        self.refused({**configs.QWEN3_30B, **fields})

    @pytest.mark.parametrize(
        "fields",
        [
            {"kv_lora_rank": None},
            {"v_head_dim": 0},
            {"n_routed_experts": 1 << 16},
            {"num_nextn_predict_layers": 1 << 20},
            {"first_k_dense_replace": -1},
        ],
    )
    def test_deepseek(self, fields: Config) -> None:
        self.refused({**configs.DEEPSEEK, **fields})

    @pytest.mark.parametrize(
        "text", ["", "[]", "null", "{", '{"a": NaN', "[" * 50_000, '{"hidden_size": 1e999}']
    )
    def test_a_file(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "config.json").write_text(text)
        self.refused(tmp_path)
        self.refused(tmp_path / "config.json")

    def test_a_file_that_is_none(self, tmp_path: Path) -> None:
        self.refused(tmp_path)
        self.refused(tmp_path / "absent")
        (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00")
        self.refused(tmp_path)

    def test_a_file_too_large(self, tmp_path: Path) -> None:
        with (tmp_path / "config.json").open("wb") as file:
            file.truncate((16 << 20) + 1)
        self.refused(tmp_path)

    @pytest.mark.parametrize("config", [None, 4, [], b"config.json", object(), dict, {1: 2}])
    def test_what_is_no_configuration(self, config: Any) -> None:
        self.refused(config)

    def test_an_object_without_a_sound_dictionary(self) -> None:
        self.refused(Saved({"hidden_size": 4}))
        self.refused(Saved([1]))
        self.refused(Saved(None))
        self.refused(Saved)

    def test_the_error_says_what_to_do(self) -> None:
        of_a_checkpoint = "give the config.json of the model's checkpoint"
        assert of_a_checkpoint in str(self.refused({**configs.QWEN3_30B, "moe_intermediate_size": None}))
        assert of_a_checkpoint in str(self.refused({**configs.QWEN3_30B, "num_experts": 1 << 16}))
        assert "known are bfloat16" in str(self.refused({**configs.QWEN3_8B, "dtype": "float8_e4m3fn"}))

    def test_the_error_says_which_are_known(self) -> None:
        error = self.refused({**configs.QWEN3_8B, "architectures": ["GemmaForCausalLM"]})
        assert "GemmaForCausalLM" in str(error)
        for known in known_architectures():
            assert known in str(error)

    def test_what_is_unknown_is_named_by_its_type_without_architectures(self) -> None:
        fields = {key: value for key, value in configs.QWEN3_8B.items() if key != "architectures"}
        assert "gemma" in str(self.refused({**fields, "model_type": "gemma"}))

    def refused(self, config: Any) -> InputError:
        with pytest.raises(InputError) as caught:
            model_of(config)
        assert caught.value.code == "unknown_model"
        assert len(str(caught.value)) < 1500
        return caught.value
