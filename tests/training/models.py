"""Qwen3 and Qwen3-MoE as transformers builds them, of a hundred thousand parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from deltastore.demo.model import require_libraries

__all__ = ["MODELS", "VOCABULARY"]

VOCABULARY = 512

_COMMON: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "initializer_range": 0.04,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}


def _qwen3(**changes: Any) -> Any:
    """Its head is its embedding."""
    require_libraries()
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(1)
    return Qwen3ForCausalLM(Qwen3Config(**{**_COMMON, **changes}, tie_word_embeddings=True))


def _qwen3_padded() -> Any:
    """A row of its embedding is zero for ever: tokens that fill up are never learned from."""
    return _qwen3(pad_token_id=0)


def _qwen3_moe() -> Any:
    require_libraries()
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    torch.manual_seed(2)
    experts: dict[str, Any] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(**_COMMON, **experts, output_router_logits=True))


MODELS: dict[str, Callable[[], Any]] = {
    "qwen3": _qwen3,
    "qwen3-padded": _qwen3_padded,
    "qwen3-moe": _qwen3_moe,
}
