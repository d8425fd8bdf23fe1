"""A gated MLP as engines hold it: gate and up merged into one parameter."""

from __future__ import annotations

from deltastore.layout.drawing import Drawing
from deltastore.layout.engines.linear import draw_columns
from deltastore.layout.model import GatedMlp
from deltastore.layout.share import Share

__all__ = ["draw_mlp"]


def draw_mlp(drawing: Drawing, mlp: GatedMlp, prefix: str, share: Share) -> None:
    """``gate_up_proj`` (this share's gate rows, then its up rows) and ``down_proj`` under ``prefix``."""
    param = f"{prefix}.gate_up_proj"
    weight = mlp.gate.weight
    first, count = share.cut(weight.shape[0], "rows of gate and of up", f"{param}.weight")
    drawing.param(f"{param}.weight", (2 * count, weight.shape[1]), weight.dtype)
    if mlp.gate.bias is not None:
        drawing.param(f"{param}.bias", (2 * count,), mlp.gate.bias.dtype)
    for linear, row in ((mlp.gate, 0), (mlp.up, count)):
        for tensor, kind in ((linear.weight, "weight"), (linear.bias, "bias")):
            if tensor is not None:
                drawing.rows(tensor, first, count, f"{param}.{kind}", row, replica=share.copy)
    draw_columns(drawing, mlp.down, f"{prefix}.down_proj", first, count, share)
