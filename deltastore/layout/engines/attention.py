"""Attention as engines hold it: queries, keys and values merged into one parameter."""

from __future__ import annotations

from deltastore.errors import InputError
from deltastore.format.dtypes import Dtype
from deltastore.layout.drawing import Drawing
from deltastore.layout.engines.linear import draw_columns
from deltastore.layout.model import Attention
from deltastore.layout.share import Share

__all__ = ["draw_attention"]


def draw_attention(
    drawing: Drawing, attention: Attention, prefix: str, share: Share, *, norms: Dtype | None
) -> None:
    """``qkv_proj``, ``o_proj`` and the norms under ``prefix``.

    ``qkv_proj`` has this share's query heads, then its key heads, then its value heads. Of fewer key heads
    than parts, neighbouring parts have the same one.
    """
    param = f"{prefix}.qkv_proj"
    first, count = share.cut(attention.heads, "heads", f"{param}.weight")
    kv_first, kv_count, copy = _kv_heads(attention.kv_heads, share, f"{param}.weight")
    cuts = (
        (attention.query, first, count, share.copy),
        (attention.key, kv_first, kv_count, copy),
        (attention.value, kv_first, kv_count, copy),
    )
    width = attention.head_dim
    rows = (count + 2 * kv_count) * width
    weight = attention.query.weight
    drawing.param(f"{param}.weight", (rows, weight.shape[1]), weight.dtype)
    if attention.query.bias is not None:
        drawing.param(f"{param}.bias", (rows,), attention.query.bias.dtype)
    row = 0
    for linear, low, heads, number in cuts:
        for tensor, name in ((linear.weight, f"{param}.weight"), (linear.bias, f"{param}.bias")):
            if tensor is not None:
                drawing.rows(tensor, low * width, heads * width, name, row, replica=number)
        row += heads * width
    draw_columns(drawing, attention.output, f"{prefix}.o_proj", first * width, count * width, share)
    for norm, name in ((attention.query_norm, "q_norm"), (attention.key_norm, "k_norm")):
        if norm is not None:
            drawing.whole(norm, f"{prefix}.{name}.weight", dtype=norms, replica=share.whole)


def _kv_heads(heads: int, share: Share, param: str) -> tuple[int, int, int]:
    """First, number, and number among copies of the key heads here."""
    if heads >= share.size:
        return *share.cut(heads, "key and value heads", param), share.copy
    if share.size % heads:
        raise InputError(
            "bad_layout",
            f"parameter {param!r}: {heads} key and value heads can be neither cut into nor copied to "
            f"{share.size} equal parts; choose a degree that divides {heads}, or that it divides",
            where=param,
        )
    copies = share.size // heads
    return share.rank // copies, 1, share.copy * copies + share.rank % copies
