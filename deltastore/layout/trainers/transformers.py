"""How a model of the ``transformers`` library holds its tensors, and a model that no converter knows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from deltastore.errors import InputError
from deltastore.format.table import TensorSpec
from deltastore.layout.drawing import Drawing
from deltastore.layout.families import model_of
from deltastore.layout.families.config import AnyConfig
from deltastore.layout.model import GatedMlp, Layer, MixtureOfExperts, Model
from deltastore.layout.pieces import Layout

__all__ = ["StackedOrSeparate", "identity", "transformers"]

StackedOrSeparate = Literal["stacked", "separate"]


def transformers(config: AnyConfig | Model, *, experts: StackedOrSeparate = "stacked") -> Layout:
    """Parameters and buffers as ``named_parameters()`` of a causal language model gives them.

    ``experts``: transformers 5 and later hold those of a layer ``"stacked"``, ``mlp.experts.gate_up_proj`` of
    shape (experts, 2 * intermediate, hidden) with the gates first, and ``mlp.experts.down_proj`` (experts,
    hidden, intermediate); earlier ones hold them ``"separate"``, as a checkpoint does. All else is named as
    in a checkpoint; a tied head is the embedding's memory. Raises ``InputError``: ``unknown_model``,
    ``bad_argument``.
    """
    if experts not in get_args(StackedOrSeparate):
        raise InputError("bad_argument", f"experts are 'stacked' or 'separate', not {experts!r:.80}")
    model = model_of(config)
    drawing = Drawing("transformers", model.tensors(), aliases=model.aliases, unheld=model.unheld)
    drawing.whole(model.embedding)
    for layer in model.layers:
        _draw_layer(drawing, layer, stacked=experts == "stacked")
    drawing.whole(model.norm)
    if model.tied:
        drawing.tie(model.head.name, model.embedding.name)
    else:
        drawing.whole(model.head)
    return drawing.done()


def identity(tensors: Iterable[TensorSpec], *, name: str = "identity") -> Layout:
    """Every parameter is a tensor: for models that no converter knows."""
    known = tuple(tensors)
    drawing = Drawing(name, known)
    for tensor in known:
        drawing.whole(tensor)
    return drawing.done()


def _draw_layer(drawing: Drawing, layer: Layer, *, stacked: bool) -> None:
    mlp = layer.mlp
    if not stacked or not isinstance(mlp, MixtureOfExperts):
        for tensor in layer.tensors():
            drawing.whole(tensor)
        return
    of_experts = {tensor.name for expert in mlp.experts for tensor in expert.tensors()}
    for tensor in layer.tensors():
        if tensor.name not in of_experts:
            drawing.whole(tensor)
    _draw_stacked(drawing, f"{layer.prefix}.mlp.experts", mlp.experts)


def _draw_stacked(drawing: Drawing, prefix: str, experts: Sequence[GatedMlp]) -> None:
    gate, down = experts[0].gate.weight, experts[0].down.weight
    rows, columns = gate.shape
    first = drawing.param(f"{prefix}.gate_up_proj", (len(experts), 2 * rows, columns), gate.dtype)
    second = drawing.param(f"{prefix}.down_proj", (len(experts), *down.shape), down.dtype)
    for number, expert in enumerate(experts):
        drawing.place(expert.gate.weight, first, at=(number, 0, 0))
        drawing.place(expert.up.weight, first, at=(number, rows, 0))
        drawing.place(expert.down.weight, second, at=(number, 0, 0))
