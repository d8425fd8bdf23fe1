"""Column- and row-parallel linears, and norms."""

from __future__ import annotations

from deltastore.format.table import TensorSpec
from deltastore.layout.drawing import Drawing
from deltastore.layout.model import GatedMlp, Linear
from deltastore.layout.trainers.megatron.place import Place

__all__ = ["draw_columns", "draw_gated", "draw_rows", "draw_whole"]


def draw_whole(drawing: Drawing, place: Place, tensor: TensorSpec | None, name: str) -> None:
    """What every tensor-parallel rank has a copy of; nothing where there is no such tensor."""
    if tensor is not None:
        drawing.whole(tensor, name, replica=place.share.whole)


def draw_rows(drawing: Drawing, place: Place, linear: Linear, name: str, *, units: int) -> None:
    """A linear whose ``units`` (heads) of output features are shared by the tensor-parallel ranks."""
    place.share.cut(units, "heads", f"{name}.weight")
    first, rows = place.share.cut(linear.weight.shape[0], "rows", f"{name}.weight")
    for tensor in linear.tensors():
        param = drawing.param(f"{name}.{_kind(tensor)}", (rows, *tensor.shape[1:]), tensor.dtype)
        drawing.rows(tensor, first, rows, param, 0, replica=place.replica)


def draw_columns(drawing: Drawing, place: Place, linear: Linear, name: str) -> None:
    """A linear whose input features are shared by the tensor-parallel ranks; all have its bias."""
    weight = linear.weight
    first, columns = place.share.cut(weight.shape[1], "columns", f"{name}.weight")
    param = drawing.param(f"{name}.weight", (weight.shape[0], columns), weight.dtype)
    drawing.columns(weight, first, columns, param, replica=place.replica)
    draw_whole(drawing, place, linear.bias, f"{name}.bias")


def draw_gated(drawing: Drawing, place: Place, mlp: GatedMlp, prefix: str) -> None:
    """``linear_fc1``, the rank's rows of the gate above its rows of the other, and ``linear_fc2``."""
    name = f"{prefix}.linear_fc1"
    first, rows = place.share.cut(mlp.gate.weight.shape[0], "rows", f"{name}.weight")
    for gate, up in zip(mlp.gate.tensors(), mlp.up.tensors(), strict=True):
        param = drawing.param(f"{name}.{_kind(gate)}", (2 * rows, *gate.shape[1:]), gate.dtype)
        drawing.rows(gate, first, rows, param, 0, replica=place.replica)
        drawing.rows(up, first, rows, param, rows, replica=place.replica)
    draw_columns(drawing, place, mlp.down, f"{prefix}.linear_fc2")


def _kind(tensor: TensorSpec) -> str:
    return "weight" if len(tensor.shape) > 1 else "bias"
