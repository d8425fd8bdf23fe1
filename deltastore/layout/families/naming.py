"""Tensors by their checkpoint names, as all families spell them."""

from __future__ import annotations

from deltastore.format.dtypes import Dtype
from deltastore.format.table import TensorSpec
from deltastore.layout.families.config import Config
from deltastore.layout.model import (
    Attention,
    GatedMlp,
    LatentAttention,
    Layer,
    Linear,
    MixtureOfExperts,
)

__all__ = ["Names"]


class Names:
    """Makes tensors of one configuration's element type."""

    def __init__(self, config: Config) -> None:
        self._hidden = config.hidden_size
        self._element = config.element

    def tensor(self, name: str, *shape: int, dtype: Dtype | None = None) -> TensorSpec:
        """Any tensor."""
        return TensorSpec(name, shape, dtype or self._element)

    def vector(self, name: str, length: int) -> TensorSpec:
        """A norm's weight."""
        return self.tensor(name, length)

    def linear(self, prefix: str, rows: int, columns: int, *, biased: bool = False) -> Linear:
        """``<prefix>.weight``, and ``<prefix>.bias`` where it is ``biased``."""
        bias = self.vector(f"{prefix}.bias", rows) if biased else None
        return Linear(self.tensor(f"{prefix}.weight", rows, columns), bias)

    def mlp(self, prefix: str, intermediate: int, *, biased: bool = False) -> GatedMlp:
        """``gate_proj``, ``up_proj`` and ``down_proj`` under ``prefix``."""
        return GatedMlp(
            self.linear(f"{prefix}.gate_proj", intermediate, self._hidden, biased=biased),
            self.linear(f"{prefix}.up_proj", intermediate, self._hidden, biased=biased),
            self.linear(f"{prefix}.down_proj", self._hidden, intermediate, biased=biased),
        )

    def layer(
        self, number: int, attention: Attention | LatentAttention, mlp: GatedMlp | MixtureOfExperts
    ) -> Layer:
        """A decoder layer with its two norms."""
        prefix = f"model.layers.{number}"
        return Layer(
            number,
            prefix,
            self.vector(f"{prefix}.input_layernorm.weight", self._hidden),
            attention,
            self.vector(f"{prefix}.post_attention_layernorm.weight", self._hidden),
            mlp,
        )
