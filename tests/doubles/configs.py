"""Configurations of models, real and small, as ``config.json`` has them: the numbers that shape tensors."""

from __future__ import annotations

from typing import Any, Final

__all__ = [
    "DEEPSEEK",
    "LLAMA_3_2_1B",
    "LLAMA_3_2_3B",
    "LLAMA_3_8B",
    "LLAMA_3_70B",
    "QWEN2_ODD",
    "QWEN3_0_6B",
    "QWEN3_1_7B",
    "QWEN3_4B",
    "QWEN3_8B",
    "QWEN3_14B",
    "QWEN3_30B",
    "QWEN3_32B",
    "QWEN3_235B",
    "REAL",
    "SMALL",
    "Fields",
    "decoder",
    "with_layers",
]

Fields = dict[str, Any]


def decoder(
    architecture: str,
    hidden: int,
    layers: int,
    heads: int,
    kv_heads: int,
    wide: int,
    vocabulary: int,
    **more: Any,
) -> Fields:
    """A configuration; ``wide``: rows of the gate of a dense layer."""
    return {
        "architectures": [architecture],
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": wide,
        "vocab_size": vocabulary,
        **more,
    }


def _qwen3(hidden: int, layers: int, heads: int, wide: int, **more: Any) -> Fields:
    return decoder("Qwen3ForCausalLM", hidden, layers, heads, 8, wide, 151936, head_dim=128, **more)


def _qwen3_moe(hidden: int, layers: int, heads: int, expert: int) -> Fields:
    return decoder(
        "Qwen3MoeForCausalLM",
        hidden,
        layers,
        heads,
        4,
        hidden * 3,
        151936,
        head_dim=128,
        num_experts=128,
        moe_intermediate_size=expert,
    )


def _llama(hidden: int, layers: int, heads: int, wide: int, **more: Any) -> Fields:
    return decoder("LlamaForCausalLM", hidden, layers, heads, 8, wide, 128256, **more)


QWEN3_0_6B: Final = _qwen3(1024, 28, 16, 3072, tie_word_embeddings=True)
QWEN3_1_7B: Final = _qwen3(2048, 28, 16, 6144, tie_word_embeddings=True)
QWEN3_4B: Final = _qwen3(2560, 36, 32, 9728, tie_word_embeddings=True)
QWEN3_8B: Final = _qwen3(4096, 36, 32, 12288)
QWEN3_14B: Final = _qwen3(5120, 40, 40, 17408)
QWEN3_32B: Final = _qwen3(5120, 64, 64, 25600)
QWEN3_30B: Final = _qwen3_moe(2048, 48, 32, 768)
QWEN3_235B: Final = _qwen3_moe(4096, 94, 64, 1536)
LLAMA_3_8B: Final = _llama(4096, 32, 32, 14336)
LLAMA_3_70B: Final = _llama(8192, 80, 64, 28672)
LLAMA_3_2_1B: Final = _llama(2048, 16, 32, 8192, head_dim=64, tie_word_embeddings=True)
LLAMA_3_2_3B: Final = _llama(3072, 28, 24, 8192, head_dim=128, tie_word_embeddings=True)

QWEN2_ODD: Final = decoder("Qwen2ForCausalLM", 896, 24, 14, 2, 4864, 32003, tie_word_embeddings=True)
"""Numbers that few divide, and a bias on queries, keys and values."""

DEEPSEEK: Final = decoder(
    "DeepseekV3ForCausalLM",
    7168,
    6,
    128,
    128,
    18432,
    129280,
    n_routed_experts=256,
    n_shared_experts=1,
    moe_intermediate_size=2048,
    first_k_dense_replace=3,
    q_lora_rank=1536,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    num_nextn_predict_layers=1,
)
"""DeepSeek-V3 with fewer layers."""

REAL: Final[dict[str, Fields]] = {
    "Qwen3-8B": QWEN3_8B,
    "Qwen3-30B-A3B": QWEN3_30B,
    "Llama-3-8B": LLAMA_3_8B,
    "Llama-3-70B": LLAMA_3_70B,
    "Qwen3-235B-A22B": QWEN3_235B,
}

_SMALL: Final[Fields] = {
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 2,
    "intermediate_size": 48,
    "vocab_size": 100,
}

SMALL: Final[dict[str, Fields]] = {
    "llama": {**_SMALL, "architectures": ["LlamaForCausalLM"]},
    "llama-biased": {
        **_SMALL,
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": True,
        "mlp_bias": True,
    },
    "qwen2-tied": {
        **_SMALL,
        "architectures": ["Qwen2ForCausalLM"],
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    },
    "qwen3": {**_SMALL, "architectures": ["Qwen3ForCausalLM"], "num_key_value_heads": 8},
    "qwen3-tied": {**_SMALL, "architectures": ["Qwen3ForCausalLM"], "tie_word_embeddings": True},
    "qwen3-moe": {
        **_SMALL,
        "architectures": ["Qwen3MoeForCausalLM"],
        "num_experts": 16,
        "moe_intermediate_size": 32,
        "mlp_only_layers": [1],
    },
    "deepseek": {
        **_SMALL,
        "architectures": ["DeepseekV3ForCausalLM"],
        "num_key_value_heads": 16,
        "n_routed_experts": 16,
        "n_shared_experts": 1,
        "first_k_dense_replace": 1,
        "moe_intermediate_size": 32,
        "q_lora_rank": 10,
        "kv_lora_rank": 6,
        "qk_nope_head_dim": 4,
        "qk_rope_head_dim": 2,
        "v_head_dim": 3,
    },
}
SMALL["deepseek-lite"] = {**SMALL["deepseek"], "q_lora_rank": None, "n_shared_experts": 2}
"""With the ratios of heads and experts that real ones have."""


def with_layers(config: Fields, layers: int) -> Fields:
    """The same model with fewer layers."""
    return {**config, "num_hidden_layers": layers}
