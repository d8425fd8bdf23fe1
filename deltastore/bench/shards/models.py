"""Models of real shapes, with fewer layers, and a step that moves some of their elements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np

from deltastore.layout.families import model_of
from deltastore.layout.model import Model

__all__ = ["CONFIGS", "ShardsPlan", "change_some", "zeros"]

Bits = np.ndarray[Any, Any]

CONFIGS: Final[dict[str, dict[str, Any]]] = {
    "qwen3-0.6b": {
        "architectures": ["Qwen3ForCausalLM"],
        "hidden_size": 1024,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 3072,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    },
    "qwen3-8b": {
        "architectures": ["Qwen3ForCausalLM"],
        "hidden_size": 4096,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 12288,
        "vocab_size": 151936,
    },
    "qwen3-30b-a3b": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "hidden_size": 2048,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "intermediate_size": 6144,
        "vocab_size": 151936,
        "num_experts": 128,
        "moe_intermediate_size": 768,
    },
}
"""By name: what their ``config.json`` says of their tensors."""


@dataclass(frozen=True, slots=True)
class ShardsPlan:
    """What to measure with.

    ``layers`` of model ``name`` and its embeddings, in a stream of ``slabs`` slabs whose experts are laid out
    for ``moe`` readers; ``density`` of the elements change; engines of ``tp`` ranks, with ``ep`` where the
    model has experts. ``instead``: members of the configuration that are other than the model's.
    """

    name: str
    layers: int
    slabs: int = 8
    moe: Literal["ep", "tp"] = "ep"
    density: float = 0.01
    tp: int = 8
    ep: int = 1
    instead: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0

    @property
    def config(self) -> dict[str, Any]:
        """The configuration of the model that is measured."""
        return {**CONFIGS[self.name], "num_hidden_layers": self.layers, **self.instead}

    @property
    def model(self) -> Model:
        """The model that is measured."""
        return model_of(self.config)


def zeros(model: Model) -> dict[str, Bits]:
    """Every tensor as raw bits, all +0.0; pages that nobody writes to take no memory."""
    return {tensor.name: np.zeros(tensor.shape, tensor.dtype.storage) for tensor in model.tensors()}


def change_some(tensors: dict[str, Bits], density: float, seed: int) -> dict[str, Bits]:
    """Move ``density`` of the elements to one of the two next values; tensor name -> which, row-major.

    Positions are uniform, so they cost what the entropy bound says.
    """
    drawn = np.random.default_rng(seed)
    marks = {}
    for name, bits in tensors.items():
        count = max(round(bits.size * density), 1)
        # With replacement, and each once: a little less than asked for.
        where = np.unique(drawn.integers(0, bits.size, count))
        flat = bits.reshape(-1)
        flat[where] = np.where(drawn.random(len(where)) < 0.5, flat[where] + 1, flat[where] ^ 0x8000)
        marks[name] = where
    return marks
