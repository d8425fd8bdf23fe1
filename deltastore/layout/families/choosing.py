"""Which family a configuration is of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from deltastore.errors import InputError
from deltastore.layout.families.config import AnyConfig, Config, read_config
from deltastore.layout.families.deepseek import deepseek_v3
from deltastore.layout.families.dense import llama, qwen2, qwen3
from deltastore.layout.families.qwen3_moe import qwen3_moe
from deltastore.layout.model import Model

__all__ = ["known_architectures", "model_of"]

_FAMILIES: Final[dict[str, Callable[[Config], Model]]] = {
    "LlamaForCausalLM": llama,
    "MistralForCausalLM": llama,
    "Qwen2ForCausalLM": qwen2,
    "Qwen3ForCausalLM": qwen3,
    "Qwen3MoeForCausalLM": qwen3_moe,
    "DeepseekV3ForCausalLM": deepseek_v3,
}


_OF_TYPE: Final = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
}
"""By ``model_type``."""

_NAMED: Final = 4


def known_architectures() -> tuple[str, ...]:
    """Values of ``architectures`` that are known, sorted."""
    return tuple(sorted(_FAMILIES))


def model_of(config: AnyConfig | Model) -> Model:
    """The model that a Hugging Face configuration describes. Needs no weights, and no torch.

    ``config``: a mapping, an object with ``to_dict()``, the path of a ``config.json`` or of its folder; or a
    model, which is returned. Raises ``InputError("unknown_model")`` for an architecture that is not known,
    and for quantised checkpoints.
    """
    if isinstance(config, Model):
        return config
    read = read_config(config)
    # One that was never saved has no architectures yet.
    for name in read.architectures or (_OF_TYPE.get(read.model_type or "", ""),):
        if name in _FAMILIES:
            if read.quantization_config is not None:
                raise InputError(
                    "unknown_model",
                    "the configuration is of a quantised checkpoint, whose values are functions of whole "
                    "blocks: give that of the unquantised one",
                )
            return _FAMILIES[name](read)
    named = ", ".join(f"{name!r:.80}" for name in (read.architectures or ())[:_NAMED])
    if not named:
        named = f"without architectures, of type {read.model_type or ''!r:.80}"
    raise InputError(
        "unknown_model", f"no converter knows a model {named}; known are {', '.join(known_architectures())}"
    )
