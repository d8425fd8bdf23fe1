"""Dense decoders: Llama 3 (and Mistral), Qwen2 and 2.5, Qwen3."""

from __future__ import annotations

from deltastore.errors import InputError
from deltastore.layout.families.config import Config
from deltastore.layout.families.naming import Names
from deltastore.layout.model import Attention, Layer, Model

__all__ = ["grouped_attention", "llama", "model_from", "qwen2", "qwen3"]


def llama(config: Config) -> Model:
    """Llama 3 and Mistral."""
    return _dense(
        "llama", config, biased=bool(config.attention_bias), output_biased=bool(config.attention_bias)
    )


def qwen2(config: Config) -> Model:
    """Qwen2 and Qwen2.5: queries, keys and values have a bias."""
    return _dense("qwen2", config, biased=True, output_biased=False)


def qwen3(config: Config) -> Model:
    """Qwen3: queries and keys have a norm per head."""
    bias = bool(config.attention_bias)
    return _dense("qwen3", config, biased=bias, output_biased=bias, normed=True)


def _dense(name: str, config: Config, *, biased: bool, output_biased: bool, normed: bool = False) -> Model:
    names = Names(config)
    wide = config.needed("intermediate_size")
    layers = []
    for number in range(config.num_hidden_layers):
        attention = grouped_attention(
            config, names, number, biased=biased, output_biased=output_biased, normed=normed
        )
        mlp = names.mlp(f"model.layers.{number}.mlp", wide, biased=bool(config.mlp_bias))
        layers.append(names.layer(number, attention, mlp))
    return model_from(name, config, names, layers)


def grouped_attention(
    config: Config, names: Names, number: int, *, biased: bool, output_biased: bool, normed: bool
) -> Attention:
    """The attention of one layer."""
    prefix = f"model.layers.{number}.self_attn"
    heads, kv_heads, per_head = config.num_attention_heads, config.kv_heads, config.per_head
    hidden = config.hidden_size
    if heads % kv_heads:
        raise InputError("unknown_model", f"{heads} attention heads are no multiple of {kv_heads} kv heads")
    return Attention(
        names.linear(f"{prefix}.q_proj", heads * per_head, hidden, biased=biased),
        names.linear(f"{prefix}.k_proj", kv_heads * per_head, hidden, biased=biased),
        names.linear(f"{prefix}.v_proj", kv_heads * per_head, hidden, biased=biased),
        names.linear(f"{prefix}.o_proj", hidden, heads * per_head, biased=output_biased),
        heads,
        kv_heads,
        per_head,
        names.vector(f"{prefix}.q_norm.weight", per_head) if normed else None,
        names.vector(f"{prefix}.k_norm.weight", per_head) if normed else None,
    )


def model_from(
    name: str, config: Config, names: Names, layers: list[Layer], *, unheld: tuple[str, ...] = ()
) -> Model:
    """The model around its layers."""
    return Model(
        name,
        names.tensor("model.embed_tokens.weight", config.vocab_size, config.hidden_size),
        tuple(layers),
        names.vector("model.norm.weight", config.hidden_size),
        names.tensor("lm_head.weight", config.vocab_size, config.hidden_size),
        bool(config.tie_word_embeddings),
        unheld,
    )
