"""DeepSeek-V3 and its like: latent attention, dense first layers, shared experts."""

from __future__ import annotations

from deltastore.format.dtypes import DTYPES
from deltastore.layout.families.config import Config
from deltastore.layout.families.dense import model_from
from deltastore.layout.families.naming import Names
from deltastore.layout.model import GatedMlp, LatentAttention, MixtureOfExperts, Model

__all__ = ["deepseek_v3"]


def deepseek_v3(config: Config) -> Model:
    """DeepSeek-V3. The layers that only predict further tokens ahead are held by nobody here."""
    names = Names(config)
    count = config.num_hidden_layers
    layers = [
        names.layer(number, _attention(config, names, number), _mlp(config, names, number))
        for number in range(count)
    ]
    ahead = tuple(f"model.layers.{count + number}." for number in range(config.num_nextn_predict_layers or 0))
    return model_from("deepseek_v3", config, names, layers, unheld=ahead)


def _attention(config: Config, names: Names, number: int) -> LatentAttention:
    prefix = f"model.layers.{number}.self_attn"
    hidden, heads, bias = config.hidden_size, config.num_attention_heads, bool(config.attention_bias)
    nope, rope = config.needed("qk_nope_head_dim"), config.needed("qk_rope_head_dim")
    value, latent = config.needed("v_head_dim"), config.needed("kv_lora_rank")
    rank = config.q_lora_rank
    queries = heads * (nope + rope)
    return LatentAttention(
        None if rank is None else names.linear(f"{prefix}.q_a_proj", rank, hidden, biased=bias),
        None if rank is None else names.vector(f"{prefix}.q_a_layernorm.weight", rank),
        names.linear(f"{prefix}.q_proj", queries, hidden)
        if rank is None
        else names.linear(f"{prefix}.q_b_proj", queries, rank),
        names.linear(f"{prefix}.kv_a_proj_with_mqa", latent + rope, hidden, biased=bias),
        names.vector(f"{prefix}.kv_a_layernorm.weight", latent),
        names.linear(f"{prefix}.kv_b_proj", heads * (nope + value), latent),
        names.linear(f"{prefix}.o_proj", hidden, heads * value, biased=bias),
        heads,
    )


def _mlp(config: Config, names: Names, number: int) -> GatedMlp | MixtureOfExperts:
    prefix = f"model.layers.{number}.mlp"
    experts = config.n_routed_experts
    sparse = number >= (config.first_k_dense_replace or 0) and number % (config.moe_layer_freq or 1) == 0
    if not experts or not sparse:
        return names.mlp(prefix, config.needed("intermediate_size"))
    shared, wide = config.n_shared_experts, config.needed("moe_intermediate_size")
    return MixtureOfExperts(
        names.tensor(f"{prefix}.gate.weight", experts, config.hidden_size),
        tuple(names.mlp(f"{prefix}.experts.{expert}", wide) for expert in range(experts)),
        names.mlp(f"{prefix}.shared_experts", wide * shared) if shared else None,
        names.tensor(f"{prefix}.gate.e_score_correction_bias", experts, dtype=DTYPES["F32"]),
    )
