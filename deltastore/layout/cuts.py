"""Where each tensor of a model is cut, and how its chunks are sorted, so that shards are whole chunks.

A *cell* is what one of n tensor-parallel processes holds of a tensor, where n is the number of slabs; with
heads or rows that n does not divide, what one of gcd(heads, n) processes holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from deltastore.format.table import TensorSpec
from deltastore.layout.model import (
    Attention,
    GatedMlp,
    LatentAttention,
    Linear,
    MixtureOfExperts,
    Model,
)
from deltastore.layout.vocabulary import VOCABULARY_MULTIPLE, padded_to

__all__ = ["Cut", "Experts", "cuts_of"]

Experts = Literal["ep", "tp"]
"""``ep``: each expert stays whole, for expert-parallel readers; ``tp``: experts are cut as a dense MLP is."""


@dataclass(frozen=True, slots=True)
class Cut:
    """``cell``: length of a cell along tensor axis ``axis``; 0 where a tensor has no cells.

    ``by``: how slabs follow, as in ``SlabRule``. ``experts``: how many follow one another as members of the
    array; a chunk then never has members of two layers. ``padding``: rows that engines have beyond the last.
    """

    by: Literal["common", "axis", "member"] = "common"
    axis: int = 0
    cell: int = 0
    experts: int = 0
    padding: int = 0


_WHOLE: Final = Cut()
Cuts = Iterator[tuple[TensorSpec, Cut]]


def cuts_of(model: Model, slabs: int, moe: Experts) -> dict[str, tuple[TensorSpec, Cut]]:
    """Name -> what the tensor is, and its cut; for every tensor of the model, and for a tied head."""
    return {spec.name: (spec, cut) for spec, cut in _of_model(model, slabs, moe)}


def _of_model(model: Model, slabs: int, moe: Experts) -> Cuts:
    rows = _vocabulary(model.vocabulary, slabs)
    yield model.embedding, rows
    yield model.head, rows
    yield model.norm, _WHOLE
    for layer in model.layers:
        yield layer.input_norm, _WHOLE
        yield layer.post_norm, _WHOLE
        if isinstance(layer.attention, Attention):
            yield from _attention(layer.attention, slabs)
        else:
            yield from _latent(layer.attention, slabs)
        if isinstance(layer.mlp, GatedMlp):
            yield from _mlp(layer.mlp, slabs)
        else:
            yield from _mixture(layer.mlp, slabs, moe)


def _vocabulary(rows: int, slabs: int) -> Cut:
    """As many cells as both divide; each longer than the padding, so that none of them is all padding."""
    padded = padded_to(rows, VOCABULARY_MULTIPLE)
    padding = padded - rows
    cells = next(
        count
        for count in range(math.gcd(slabs, padded), 0, -1)
        if math.gcd(slabs, padded) % count == 0 and padded // count > padding
    )
    return Cut("axis", 0, padded // cells, padding=padding)


def _attention(attention: Attention, slabs: int) -> Cuts:
    heads, kv_heads, wide = attention.heads, attention.kv_heads, attention.head_dim
    yield from _linear(attention.query, _cells(0, heads, wide, slabs))
    # Heads fewer than slabs: those who share one find it in the slab of the first of them.
    held = _cells(0, kv_heads, wide, slabs) if kv_heads >= slabs else Cut("axis", 0, wide)
    yield from _linear(attention.key, held)
    yield from _linear(attention.value, held)
    yield from _linear(attention.output, _cells(1, heads, wide, slabs))
    for norm in (attention.query_norm, attention.key_norm):
        if norm is not None:
            yield norm, _WHOLE


def _latent(attention: LatentAttention, slabs: int) -> Cuts:
    heads = attention.heads
    for linear in (attention.query_down, attention.kv_down):
        if linear is not None:
            yield from _linear(linear, _WHOLE)
    for norm in (attention.query_norm, attention.kv_norm):
        if norm is not None:
            yield norm, _WHOLE
    for linear in (attention.query, attention.kv_up):
        yield from _linear(linear, _cells(0, heads, linear.weight.shape[0] // heads, slabs))
    output = attention.output
    yield from _linear(output, _cells(1, heads, output.weight.shape[1] // heads, slabs))


def _mlp(mlp: GatedMlp, slabs: int, experts: int = 0) -> Cuts:
    wide = mlp.gate.weight.shape[0]
    yield from _linear(mlp.gate, _cells(0, wide, 1, slabs, experts))
    yield from _linear(mlp.up, _cells(0, wide, 1, slabs, experts))
    yield from _linear(mlp.down, _cells(1, wide, 1, slabs, experts))


def _mixture(mixture: MixtureOfExperts, slabs: int, moe: Experts) -> Cuts:
    count = len(mixture.experts)
    yield mixture.router, _WHOLE
    if mixture.correction is not None:
        yield mixture.correction, _WHOLE
    if mixture.shared is not None:
        yield from _mlp(mixture.shared, slabs)
    whole = Cut("member", experts=count)
    for expert in mixture.experts:
        if moe == "tp":
            yield from _mlp(expert, slabs, count)
        else:
            yield from ((spec, whole) for spec in expert.tensors())


def _cells(axis: int, units: int, length: int, slabs: int, experts: int = 0) -> Cut:
    """Cells of whole units, each ``length`` elements long along ``axis``, as many as both divide."""
    return Cut("axis", axis, units // math.gcd(units, slabs) * length, experts)


def _linear(linear: Linear, cut: Cut) -> Cuts:
    """A bias is small: every reader has all of it."""
    yield linear.weight, cut
    if linear.bias is not None:
        yield linear.bias, _WHOLE
