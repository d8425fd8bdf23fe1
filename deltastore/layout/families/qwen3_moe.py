"""Qwen3 mixture of experts."""

from __future__ import annotations

from deltastore.layout.families.config import Config
from deltastore.layout.families.dense import grouped_attention, model_from
from deltastore.layout.families.naming import Names
from deltastore.layout.model import GatedMlp, MixtureOfExperts, Model

__all__ = ["qwen3_moe"]


def qwen3_moe(config: Config) -> Model:
    """Qwen3-MoE; layers in ``mlp_only_layers``, or between sparse steps, are dense."""
    names = Names(config)
    bias = bool(config.attention_bias)
    layers = []
    for number in range(config.num_hidden_layers):
        attention = grouped_attention(config, names, number, biased=bias, output_biased=bias, normed=True)
        layers.append(names.layer(number, attention, _mlp(config, names, number)))
    return model_from("qwen3_moe", config, names, layers)


def _mlp(config: Config, names: Names, number: int) -> GatedMlp | MixtureOfExperts:
    prefix = f"model.layers.{number}.mlp"
    experts = config.needed("num_experts")
    sparse = experts > 0 and (number + 1) % (config.decoder_sparse_step or 1) == 0
    if not sparse or number in (config.mlp_only_layers or ()):
        return names.mlp(prefix, config.needed("intermediate_size"))
    wide = config.needed("moe_intermediate_size")
    return MixtureOfExperts(
        names.tensor(f"{prefix}.gate.weight", experts, config.hidden_size),
        tuple(names.mlp(f"{prefix}.experts.{expert}", wide) for expert in range(experts)),
    )
