"""Tiny models: their configurations, and checkpoints of which no two elements are equal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deltastore.layout.families import model_of

__all__ = ["MODELS", "drawn", "numbered", "saved_config"]

_DENSE = {
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 192,
    "vocab_size": 1000,  # 24 rows of padding, all on the last rank
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
    "dtype": "float32",
}
_EXPERTS = {"num_experts": 9, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "norm_topk_prob": True}
_DEEPSEEK = {
    "num_key_value_heads": 8,
    "first_k_dense_replace": 1,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "n_group": 4,
    "topk_group": 2,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "topk_method": "noaux_tc",
    "scoring_func": "sigmoid",
}


def _model(architecture: str, model_type: str, **members: Any) -> dict[str, Any]:
    return {"architectures": [architecture], "model_type": model_type, **_DENSE, **members}


MODELS = {
    "qwen3": _model("Qwen3ForCausalLM", "qwen3"),
    "qwen3 tied": _model("Qwen3ForCausalLM", "qwen3", tie_word_embeddings=True),
    "qwen3-moe": _model("Qwen3MoeForCausalLM", "qwen3_moe", **_EXPERTS),
    "qwen3-moe tied, a dense layer": _model(
        "Qwen3MoeForCausalLM", "qwen3_moe", **_EXPERTS, tie_word_embeddings=True, mlp_only_layers=[1]
    ),
    "qwen2": _model("Qwen2ForCausalLM", "qwen2", head_dim=16),
    "llama": _model("LlamaForCausalLM", "llama"),
    "llama tied, biases": _model(
        "LlamaForCausalLM", "llama", tie_word_embeddings=True, attention_bias=True, mlp_bias=True
    ),
    "deepseek-v3": _model("DeepseekV3ForCausalLM", "deepseek_v3", **{**_DEEPSEEK, "q_lora_rank": 96}),
    "deepseek-v3, whole queries": _model(
        "DeepseekV3ForCausalLM", "deepseek_v3", **{**_DEEPSEEK, "q_lora_rank": None}
    ),
}


def saved_config(config: dict[str, Any], folder: Path) -> Path:
    """The folder, with ``config.json`` in it."""
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def numbered(config: dict[str, Any]) -> dict[str, NDArray[np.float32]]:
    """Every tensor of the checkpoint; its elements are consecutive numbers from 1 on, exact in FP32."""
    tensors, first = {}, 1
    for spec in model_of(config).tensors():
        count = int(np.prod(spec.shape))
        tensors[spec.name] = np.arange(first, first + count, dtype=np.float32).reshape(spec.shape)
        first += count
    assert first < 1 << 24
    return tensors


def drawn(config: dict[str, Any], *, seed: int) -> dict[str, torch.Tensor]:
    """Every tensor of the checkpoint with weights as they may be, in its own element type."""
    generator = torch.Generator().manual_seed(seed)
    types = {"BF16": torch.bfloat16, "F32": torch.float32}
    return {
        spec.name: (torch.randn(spec.shape, generator=generator) * 0.02).to(types[spec.dtype.name])
        for spec in model_of(config).tensors()
    }
