"""Model families: the tensors of a configuration against those that transformers itself makes and saves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors import safe_open

from deltastore.layout.families import model_of
from deltastore.layout.model import GatedMlp, LatentAttention, MixtureOfExperts
from tests.doubles import configs

Config = dict[str, Any]

_SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 100,
    "head_dim": 8,
}
_QWEN3_MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_DEEPSEEK = {
    "num_key_value_heads": 4,
    "n_routed_experts": 4,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
    "q_lora_rank": 12,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 6,
    "num_nextn_predict_layers": 0,
}
_TIED = {"tie_word_embeddings": True}

MODELS: dict[str, tuple[str, str, Config]] = {
    "llama": ("LlamaForCausalLM", "llama", {}),
    "llama-biased-tied": ("LlamaForCausalLM", "llama", {"attention_bias": True, "mlp_bias": True, **_TIED}),
    "mistral": ("MistralForCausalLM", "mistral", {}),
    "qwen2": ("Qwen2ForCausalLM", "qwen2", {}),
    "qwen2-tied": ("Qwen2ForCausalLM", "qwen2", _TIED),
    "qwen3": ("Qwen3ForCausalLM", "qwen3", {}),
    "qwen3-biased-tied": ("Qwen3ForCausalLM", "qwen3", {"attention_bias": True, **_TIED}),
    "qwen3-moe": ("Qwen3MoeForCausalLM", "qwen3_moe", {**_QWEN3_MOE, **_TIED, "attention_bias": True}),
    "qwen3-moe-dense-between": (
        "Qwen3MoeForCausalLM",
        "qwen3_moe",
        {**_QWEN3_MOE, "decoder_sparse_step": 2, "mlp_only_layers": [1]},
    ),
    "deepseek": ("DeepseekV3ForCausalLM", "deepseek_v3", _DEEPSEEK),
    "deepseek-plain-queries": (
        "DeepseekV3ForCausalLM",
        "deepseek_v3",
        {**_DEEPSEEK, "q_lora_rank": None, "attention_bias": True, "n_shared_experts": 1},
    ),
}


def theirs(name: str, **changes: Any) -> transformers.PretrainedConfig:
    architecture, kind, fields = MODELS[name]
    made = transformers.CONFIG_MAPPING[kind](**{**_SMALL, **fields, **changes})
    made.architectures = [architecture]
    made.dtype = "bfloat16"
    return made


def made_by(config: transformers.PretrainedConfig) -> Any:
    make: Any = transformers.AutoModelForCausalLM.from_config
    return make(config, dtype=torch.bfloat16)


def shapes(config: Any) -> dict[str, tuple[int, ...]]:
    return {spec.name: spec.shape for spec in model_of(config).tensors()}


@pytest.mark.parametrize("name", MODELS)
def test_what_transformers_saves(name: str, tmp_path: Path) -> None:
    made = made_by(theirs(name))
    made.save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        saved = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118
        found = {key: tuple(part.get_shape()) for key, part in saved.items()}
        types = {key: part.get_dtype() for key, part in saved.items()}
    assert shapes(tmp_path) == shapes(tmp_path / "config.json") == found
    other = {
        spec.name: spec.dtype.name
        for spec in model_of(tmp_path).tensors()
        if types[spec.name] != spec.dtype.name
    }
    # Transformers widens the router of DeepSeek models; as released it is BF16.
    assert all(key.endswith("mlp.gate.weight") and name.startswith("deepseek") for key in other)
    assert model_of(tmp_path).tied == made.config.tie_word_embeddings


@pytest.mark.parametrize(
    "name", ["llama", "llama-biased-tied", "mistral", "qwen2", "qwen3", "qwen3-biased-tied"]
)
def test_the_parameters_that_transformers_holds_at_real_sizes(name: str) -> None:
    sizes = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
    config = theirs(name, **sizes, intermediate_size=14336, vocab_size=128256, num_hidden_layers=3)
    with torch.device("meta"):
        held = made_by(config)
    assert shapes(config) == {key: tuple(param.shape) for key, param in held.named_parameters()}


@pytest.mark.parametrize(
    ("config", "elements", "tensors"),
    [
        (configs.QWEN3_8B, 8_190_735_360, 399),
        (configs.QWEN3_30B, 30_532_122_624, 18_867),
        (configs.LLAMA_3_8B, 8_030_261_248, 291),
        (configs.QWEN3_0_6B, 596_049_920, 310),
        (configs.QWEN3_1_7B, 1_720_574_976, 310),
        (configs.QWEN3_4B, 4_022_468_096, 398),
        (configs.LLAMA_3_2_1B, 1_235_814_400, 146),
        (configs.LLAMA_3_2_3B, 3_212_749_824, 254),
        (configs.QWEN3_14B, 14_768_307_200, 443),
        (configs.QWEN3_32B, 32_762_123_264, 707),
        (configs.LLAMA_3_70B, 70_553_706_496, 723),
        (configs.QWEN3_235B, 235_093_634_560, 36_945),
    ],
)
def test_sizes_of_released_models(config: Config, elements: int, tensors: int) -> None:
    specs = list(model_of(config).tensors())
    assert (sum(spec.elements for spec in specs), len(specs)) == (elements, tensors)
    assert len({spec.name for spec in specs}) == tensors


def test_deepseek() -> None:
    model = model_of({**configs.DEEPSEEK, "num_hidden_layers": 61})
    assert sum(spec.elements for spec in model.tensors()) == 671_026_419_200
    assert [isinstance(layer.mlp, GatedMlp) for layer in model.layers] == [True] * 3 + [False] * 58
    last = model.layers[-1]
    assert isinstance(last.attention, LatentAttention)
    assert isinstance(last.mlp, MixtureOfExperts)
    assert (last.mlp.router.shape, len(last.mlp.experts)) == ((256, 7168), 256)
    assert last.mlp.correction is not None
    assert last.mlp.correction.dtype.name == "F32"
    assert model.unheld == ("model.layers.61.",)


@pytest.mark.parametrize("spelled", ["num_experts", "num_local_experts"])
def test_both_spellings_of_the_number_of_experts(spelled: str) -> None:
    config = dict(configs.QWEN3_30B)
    config[spelled] = config.pop("num_experts")
    assert sum(spec.elements for spec in model_of(config).tensors()) == 30_532_122_624


def test_a_tied_head_is_an_alias() -> None:
    model = model_of(configs.QWEN3_0_6B)
    assert model.aliases == {"lm_head.weight": "model.embed_tokens.weight"}
    assert "lm_head.weight" not in {spec.name for spec in model.tensors()}
    assert model_of(configs.QWEN3_8B).aliases == {}


@pytest.mark.parametrize(
    ("fields", "dtype"),
    [
        ({}, "BF16"),
        ({"dtype": "float32"}, "F32"),
        ({"torch_dtype": "float16"}, "F16"),
        ({"torch_dtype": "torch.bfloat16"}, "BF16"),
    ],
)
def test_element_types(fields: Config, dtype: str) -> None:
    assert model_of({**configs.QWEN3_0_6B, **fields}).embedding.dtype.name == dtype


def test_null_is_as_not_given() -> None:
    members = (
        "head_dim",
        "attention_bias",
        "mlp_bias",
        "tie_word_embeddings",
        "quantization_config",
        "dtype",
    )
    nulls = dict.fromkeys((*members, "num_experts", "mlp_only_layers", "moe_layer_freq"))
    plain = {key: value for key, value in configs.LLAMA_3_8B.items() if key not in nulls}
    assert shapes({**plain, **nulls}) == shapes(plain)


def test_a_mapping_is_as_good_as_its_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(configs.DEEPSEEK))
    assert model_of(tmp_path) == model_of(str(tmp_path / "config.json")) == model_of(configs.DEEPSEEK)
