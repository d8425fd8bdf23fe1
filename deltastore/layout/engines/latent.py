"""Latent attention (DeepSeek) as engines hold it: both ways down merged, whole in every process."""

from __future__ import annotations

from deltastore.format.dtypes import Dtype
from deltastore.layout.drawing import Drawing
from deltastore.layout.engines.linear import draw_columns, draw_rows, draw_whole, refuse_bias
from deltastore.layout.model import LatentAttention, Linear
from deltastore.layout.share import Share

__all__ = ["draw_latent"]


def draw_latent(
    drawing: Drawing,
    attention: LatentAttention,
    prefix: str,
    share: Share,
    *,
    merged: str,
    norms: Dtype | None,
) -> None:
    """The parameters under ``prefix``; ``merged`` is what the engine calls the merged way down.

    That one is all rows of ``q_a_proj``, then all of ``kv_a_proj_with_mqa``, in every process. The ways up
    are cut by heads.
    """
    up = "q_proj" if attention.query_down is None else "q_b_proj"
    down = attention.kv_down
    for linear in (attention.query_down, down, attention.query, attention.kv_up, attention.output):
        if linear is not None:
            refuse_bias(linear, linear.weight.name.removesuffix(".weight"))
    if attention.query_down is None:
        draw_whole(drawing, down, f"{prefix}.kv_a_proj_with_mqa", share)
    else:
        _draw_merged(drawing, attention.query_down, down, f"{prefix}.{merged}.weight", share)
    if attention.query_norm is not None:
        drawing.whole(
            attention.query_norm, f"{prefix}.q_a_layernorm.weight", dtype=norms, replica=share.whole
        )
    drawing.whole(attention.kv_norm, f"{prefix}.kv_a_layernorm.weight", dtype=norms, replica=share.whole)
    first, count = share.cut(attention.heads, "heads", f"{prefix}.{up}.weight")
    for linear, name in ((attention.query, up), (attention.kv_up, "kv_b_proj")):
        width = linear.weight.shape[0] // attention.heads
        draw_rows(drawing, linear, f"{prefix}.{name}", first * width, count * width, copy=share.copy)
    width = attention.output.weight.shape[1] // attention.heads
    draw_columns(drawing, attention.output, f"{prefix}.o_proj", first * width, count * width, share)


def _draw_merged(drawing: Drawing, query: Linear, kv: Linear, param: str, share: Share) -> None:
    rows, hidden = query.weight.shape
    drawing.param(param, (rows + kv.weight.shape[0], hidden), query.weight.dtype)
    drawing.rows(query.weight, 0, rows, param, 0, replica=share.whole)
    drawing.rows(kv.weight, 0, kv.weight.shape[0], param, rows, replica=share.whole)
