"""One linear map as engines hold it: cut by rows, cut by columns, or whole."""

from __future__ import annotations

from deltastore.errors import InputError
from deltastore.layout.drawing import Drawing
from deltastore.layout.model import Linear
from deltastore.layout.share import Share

__all__ = ["draw_columns", "draw_rows", "draw_whole", "refuse_bias"]


def draw_rows(drawing: Drawing, linear: Linear, param: str, first: int, count: int, *, copy: int) -> None:
    """Rows ``[first, first + count)`` of the weight, and of the bias."""
    for tensor, kind in ((linear.weight, "weight"), (linear.bias, "bias")):
        if tensor is not None:
            drawing.param(f"{param}.{kind}", (count, *tensor.shape[1:]), tensor.dtype)
            drawing.rows(tensor, first, count, f"{param}.{kind}", 0, replica=copy)


def draw_columns(drawing: Drawing, linear: Linear, param: str, first: int, count: int, share: Share) -> None:
    """Columns ``[first, first + count)`` of the weight; the bias, if there is one, is not cut."""
    weight = linear.weight
    drawing.param(f"{param}.weight", (weight.shape[0], count), weight.dtype)
    drawing.columns(weight, first, count, f"{param}.weight", replica=share.copy)
    if linear.bias is not None:
        drawing.whole(linear.bias, f"{param}.bias", replica=share.whole)


def draw_whole(drawing: Drawing, linear: Linear, param: str, share: Share) -> None:
    """All of it in every process."""
    drawing.whole(linear.weight, f"{param}.weight", replica=share.whole)
    if linear.bias is not None:
        drawing.whole(linear.bias, f"{param}.bias", replica=share.whole)


def refuse_bias(linear: Linear, param: str) -> None:
    """Raise ``InputError("bad_layout")`` for a bias that the engine has no parameter for."""
    if linear.bias is not None:
        raise InputError(
            "bad_layout",
            f"the engine has no parameter for tensor {linear.bias.name!r}: it makes {param!r} without a bias",
            where=f"{param}.bias",
        )
