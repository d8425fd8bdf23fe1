"""Small models of every family, with the ratios of heads and experts that real ones have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltastore.format.dtypes import DTYPES
from deltastore.layout.laid_parts import Params, parts_of
from deltastore.layout.pieces import Layout

__all__ = ["CONFIGS", "Ids", "add_published", "filled", "of_ids"]

Ids = dict[str, NDArray[np.int64]]

_COMMON: dict[str, Any] = {"hidden_size": 24, "dtype": "bfloat16"}

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 32,
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 2,
        "intermediate_size": 48,
        "vocab_size": 129,
    },
    "qwen2-tied": {
        "architectures": ["Qwen2ForCausalLM"],
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 6,
        "intermediate_size": 40,
        "vocab_size": 64,
        "tie_word_embeddings": True,
    },
    "qwen3": {
        "architectures": ["Qwen3ForCausalLM"],
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "head_dim": 4,
        "intermediate_size": 64,
        "vocab_size": 70,
        "attention_bias": True,
    },
    "qwen3-moe": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 2,
        "intermediate_size": 48,
        "moe_intermediate_size": 16,
        "num_experts": 8,
        "mlp_only_layers": [1],
        "vocab_size": 100,
    },
    "deepseek": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "intermediate_size": 32,
        "moe_intermediate_size": 8,
        "n_routed_experts": 8,
        "n_shared_experts": 2,
        "first_k_dense_replace": 1,
        "q_lora_rank": 16,
        "kv_lora_rank": 12,
        "qk_nope_head_dim": 3,
        "qk_rope_head_dim": 4,
        "v_head_dim": 5,
        "vocab_size": 96,
        "num_nextn_predict_layers": 1,
    },
}
CONFIGS = {name: {**_COMMON, **config} for name, config in CONFIGS.items()}


def filled(layout: Layout, ids: Mapping[str, NDArray[np.int64]]) -> Ids:
    """Parameters as the layout says they are, in their own shapes; an element is written once."""
    params: Ids = {}
    for param in layout.params:
        flat = np.full(param.elements, -1, np.int64)
        for hole in layout.holes:
            if hole.param == param.name:
                box = tuple(slice(at, at + size) for at, size in zip(hole.at, hole.size, strict=True))
                flat.reshape(param.form)[box] = 0
        for piece in layout.of_param.get(param.name, ()):
            steps = [
                stride * np.arange(size)
                for stride, size in zip(piece.strides(param.form), piece.size, strict=True)
            ]
            places = piece.base(param.form) + sum(np.ix_(*steps), np.int64(0))
            assert (flat[places] == -1).all()
            flat[places] = ids[piece.tensor][
                tuple(slice(lo, lo + size) for lo, size in zip(piece.lo, piece.size, strict=True))
            ]
        assert (flat >= 0).all()
        params[param.name] = flat.reshape(param.shape)
    return params


def of_ids(layout: Layout) -> Layout:
    """The same layout over elements that can hold ids."""
    tensors = tuple(replace(tensor, dtype=DTYPES["I64"]) for tensor in layout.tensors)
    params = tuple(replace(param, dtype=DTYPES["I64"]) for param in layout.params)
    return replace(layout, tensors=tensors, params=params)


def add_published(layout: Layout, params: Params, published: Ids) -> None:
    """Add what a process publishes of ``params``, which hold ids, to where it belongs."""
    for name, parts in parts_of(of_ids(layout), params).items():
        for part in parts:
            box = tuple(slice(at, at + n) for at, n in zip(part.start, part.tensor.shape, strict=True))
            published[name][box] += np.asarray(part.tensor)
