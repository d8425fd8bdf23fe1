"""Attention in Megatron-core: queries, keys and values interleaved by query group; latent attention."""

from __future__ import annotations

from collections.abc import Iterator

from deltastore.errors import InputError
from deltastore.format.table import TensorSpec
from deltastore.layout.drawing import Drawing
from deltastore.layout.model import Attention, LatentAttention, Layer
from deltastore.layout.trainers.megatron.linears import draw_columns, draw_rows, draw_whole
from deltastore.layout.trainers.megatron.place import Place

__all__ = ["draw_attention"]


def draw_attention(drawing: Drawing, place: Place, layer: Layer, prefix: str, *, fused: bool) -> None:
    """The attention of one layer and the norm before it; ``fused``: norms belong to the linear after them."""
    name = f"{prefix}.self_attention"
    if isinstance(layer.attention, LatentAttention):
        draw_whole(drawing, place, layer.input_norm, f"{prefix}.input_layernorm.weight")
        _draw_latent(drawing, place, layer.attention, name, fused=fused)
    else:
        norm = f"{name}.linear_qkv.layer_norm_weight" if fused else f"{prefix}.input_layernorm.weight"
        draw_whole(drawing, place, layer.input_norm, norm)
        _draw_grouped(drawing, place, layer.attention, name)
    draw_columns(drawing, place, layer.attention.output, f"{name}.linear_proj")


def _draw_grouped(drawing: Drawing, place: Place, attention: Attention, prefix: str) -> None:
    name = f"{prefix}.linear_qkv"
    tp, groups = place.tp, attention.kv_heads
    place.share.cut(attention.heads, "heads", f"{name}.weight")
    if groups % tp and tp % groups:
        raise InputError(
            "bad_layout",
            f"parameter {name + '.weight'!r}: {groups} query groups are not to be shared by {tp} ranks: "
            f"choose a tp that divides {groups}, or that it divides",
            where=f"{name}.weight",
        )
    every = (attention.heads + 2 * groups) * attention.head_dim
    low, rows = place.share.cut(every, "rows", f"{name}.weight")
    linears = (attention.query, attention.key, attention.value)
    for kind, tensors in (
        ("weight", [linear.weight for linear in linears]),
        ("bias", [linear.bias for linear in linears if linear.bias is not None]),
    ):
        if not tensors:
            continue
        param = drawing.param(f"{name}.{kind}", (rows, *tensors[0].shape[1:]), tensors[0].dtype)
        for tensor, first, count, row in _interleaved(attention, tensors, low, rows):
            drawing.rows(tensor, first, count, param, row, replica=place.replica)
    draw_whole(drawing, place, attention.query_norm, f"{prefix}.q_layernorm.weight")
    draw_whole(drawing, place, attention.key_norm, f"{prefix}.k_layernorm.weight")


def _interleaved(
    attention: Attention, tensors: list[TensorSpec], low: int, rows: int
) -> Iterator[tuple[TensorSpec, int, int, int]]:
    """Rows ``[low, low + rows)`` of all groups' queries, key and value one after another.

    Yields tensor, first row in it, number of rows, row relative to ``low``. A rank may have part of a group.
    """
    queries = attention.heads // attention.kv_heads * attention.head_dim
    lengths = (queries, attention.head_dim, attention.head_dim)
    start = 0
    for group in range(attention.kv_heads):
        for tensor, length in zip(tensors, lengths, strict=True):
            first, end = max(start, low), min(start + length, low + rows)
            if first < end:
                yield tensor, group * length + first - start, end - first, first - low
            start += length


def _draw_latent(
    drawing: Drawing, place: Place, attention: LatentAttention, prefix: str, *, fused: bool
) -> None:
    """``fused``: the projections down are whole on every rank; else they are cut like any other."""
    heads = attention.heads
    up = "linear_q_proj" if attention.query_down is None else "linear_q_up_proj"
    for linear, name in (
        (attention.query_down, "linear_q_down_proj"),
        (attention.kv_down, "linear_kv_down_proj"),
    ):
        if linear is None:
            continue
        if fused:
            for tensor, kind in zip(linear.tensors(), ("weight", "bias"), strict=False):
                draw_whole(drawing, place, tensor, f"{prefix}.{name}.{kind}")
        else:
            draw_rows(drawing, place, linear, f"{prefix}.{name}", units=linear.weight.shape[0])
    norms = (f"{up}.layer_norm_weight", "linear_kv_up_proj.layer_norm_weight")
    if not fused:
        norms = ("q_layernorm.weight", "kv_layernorm.weight")
    draw_whole(drawing, place, attention.query_norm, f"{prefix}.{norms[0]}")
    draw_whole(drawing, place, attention.kv_norm, f"{prefix}.{norms[1]}")
    draw_rows(drawing, place, attention.query, f"{prefix}.{up}", units=heads)
    draw_rows(drawing, place, attention.kv_up, f"{prefix}.linear_kv_up_proj", units=heads)
