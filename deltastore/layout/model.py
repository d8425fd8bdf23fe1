"""What a model is made of, in checkpoint names: the blocks that converters know how to cut and fuse.

A family (``layout.families``) makes one from a configuration; trainers' and engines' layouts, and the chunk
grid, are drawn from it. Shapes are those of the checkpoint: a linear weight is (out, in).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deltastore.format.table import TensorSpec

__all__ = [
    "Attention",
    "GatedMlp",
    "LatentAttention",
    "Layer",
    "Linear",
    "MixtureOfExperts",
    "Model",
]


@dataclass(frozen=True, slots=True)
class Linear:
    """A weight (out, in), and a bias (out,) where there is one."""

    weight: TensorSpec
    bias: TensorSpec | None = None

    def tensors(self) -> Iterator[TensorSpec]:
        """Its tensors."""
        yield self.weight
        if self.bias is not None:
            yield self.bias


@dataclass(frozen=True, slots=True)
class Attention:
    """Grouped-query attention.

    ``query`` has heads * head_dim rows, ``key`` and ``value`` kv_heads * head_dim, ``output`` heads *
    head_dim columns. The norms are (head_dim,), one for all heads.
    """

    query: Linear
    key: Linear
    value: Linear
    output: Linear
    heads: int
    kv_heads: int
    head_dim: int
    query_norm: TensorSpec | None = None
    key_norm: TensorSpec | None = None

    def tensors(self) -> Iterator[TensorSpec]:
        """Its tensors."""
        for linear in (self.query, self.key, self.value, self.output):
            yield from linear.tensors()
        yield from (norm for norm in (self.query_norm, self.key_norm) if norm is not None)


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek): queries, keys and values go through a small latent space.

    ``query_down`` and ``query_norm`` are None where queries are not compressed; ``query`` then takes the
    hidden state. ``query`` has heads * (nope + rope) rows; ``kv_down`` latent + rope rows, with one rotary
    part for all heads; ``kv_up`` heads * (nope + value) rows; ``output`` heads * value columns.
    """

    query_down: Linear | None
    query_norm: TensorSpec | None
    query: Linear
    kv_down: Linear
    kv_norm: TensorSpec
    kv_up: Linear
    output: Linear
    heads: int

    def tensors(self) -> Iterator[TensorSpec]:
        """Its tensors."""
        if self.query_down is not None:
            yield from self.query_down.tensors()
        if self.query_norm is not None:
            yield self.query_norm
        yield from self.query.tensors()
        yield from self.kv_down.tensors()
        yield self.kv_norm
        yield from self.kv_up.tensors()
        yield from self.output.tensors()


@dataclass(frozen=True, slots=True)
class GatedMlp:
    """``gate`` and ``up`` (intermediate, hidden), ``down`` (hidden, intermediate); also one expert."""

    gate: Linear
    up: Linear
    down: Linear

    def tensors(self) -> Iterator[TensorSpec]:
        """Its tensors."""
        for linear in (self.gate, self.up, self.down):
            yield from linear.tensors()


@dataclass(frozen=True, slots=True)
class MixtureOfExperts:
    """``router`` (experts, hidden); ``correction`` (experts,) is the bias that only chooses experts."""

    router: TensorSpec
    experts: Sequence[GatedMlp]
    shared: GatedMlp | None = None
    correction: TensorSpec | None = None

    def tensors(self) -> Iterator[TensorSpec]:
        """Its tensors."""
        yield self.router
        if self.correction is not None:
            yield self.correction
        for expert in self.experts:
            yield from expert.tensors()
        if self.shared is not None:
            yield from self.shared.tensors()


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer; ``prefix`` is ``model.layers.<number>``."""

    number: int
    prefix: str
    input_norm: TensorSpec
    attention: Attention | LatentAttention
    post_norm: TensorSpec
    mlp: GatedMlp | MixtureOfExperts

    def tensors(self) -> Iterator[TensorSpec]:
        """Its tensors."""
        yield self.input_norm
        yield from self.attention.tensors()
        yield self.post_norm
        yield from self.mlp.tensors()


@dataclass(frozen=True, slots=True)
class Model:
    """A whole model.

    ``head`` and ``embedding`` are (vocabulary, hidden). Where they are ``tied``, the head is no tensor of the
    checkpoint but an *alias* of the embedding; its spec is here all the same. ``unheld``: prefixes of tensors
    that a checkpoint may have and no engine needs (extra prediction layers).
    """

    architecture: str
    embedding: TensorSpec
    layers: Sequence[Layer]
    norm: TensorSpec
    head: TensorSpec
    tied: bool
    unheld: tuple[str, ...] = ()

    @property
    def vocabulary(self) -> int:
        """Rows of the embedding."""
        return self.embedding.shape[0]

    @property
    def aliases(self) -> dict[str, str]:
        """Names that stand for a tensor of another name."""
        return {self.head.name: self.embedding.name} if self.tied else {}

    def tensors(self) -> Iterator[TensorSpec]:
        """Every tensor of the checkpoint, without aliases."""
        yield self.embedding
        for layer in self.layers:
            yield from layer.tensors()
        yield self.norm
        if not self.tied:
            yield self.head
