"""The decoder layers of one process, where each block has its own share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from deltastore.format.dtypes import Dtype
from deltastore.layout.drawing import Drawing
from deltastore.layout.engines.attention import draw_attention
from deltastore.layout.engines.experts import Orientation, draw_experts
from deltastore.layout.engines.latent import draw_latent
from deltastore.layout.engines.linear import refuse_bias
from deltastore.layout.engines.mlp import draw_mlp
from deltastore.layout.model import Attention, GatedMlp, Layer, MixtureOfExperts
from deltastore.layout.share import Share

__all__ = ["Place", "Spelling", "draw_layers"]


@dataclass(frozen=True, slots=True)
class Spelling:
    """What an engine calls things, and which biases it has parameters for."""

    latent: str
    experts: str
    output_bias: bool
    mlp_bias: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Where a process stands, and what it was told.

    ``slots``: the experts in the order in which the process has them, each with its number of copy.
    ``fused_shared``: the shared expert is one of them. ``router``, ``norms`` and ``embedding``: types that
    differ from the checkpoint's.
    """

    attention: Share
    mlp: Share
    shared: Share
    experts: Share
    slots: Callable[[MixtureOfExperts], list[tuple[GatedMlp, int]]]
    orientation: Orientation
    fused_shared: bool = False
    router: Dtype | None = None
    norms: Dtype | None = None
    embedding: Dtype | None = None


def draw_layers(drawing: Drawing, layers: Iterable[Layer], place: Place, spelling: Spelling) -> None:
    """All parameters of these layers, which keep the numbers that they have in the checkpoint."""
    whole = place.attention.whole
    for layer in layers:
        drawing.whole(layer.input_norm, dtype=place.norms, replica=whole)
        drawing.whole(layer.post_norm, dtype=place.norms, replica=whole)
        prefix = f"{layer.prefix}.self_attn"
        if isinstance(layer.attention, Attention):
            if not spelling.output_bias:
                refuse_bias(layer.attention.output, f"{prefix}.o_proj")
            draw_attention(drawing, layer.attention, prefix, place.attention, norms=place.norms)
        else:
            draw_latent(
                drawing, layer.attention, prefix, place.attention, merged=spelling.latent, norms=place.norms
            )
        if isinstance(layer.mlp, MixtureOfExperts):
            _draw_mixture(drawing, layer.mlp, f"{layer.prefix}.mlp", place, spelling)
            continue
        if not spelling.mlp_bias:
            for linear, name in ((layer.mlp.gate, "gate_up_proj"), (layer.mlp.down, "down_proj")):
                refuse_bias(linear, f"{layer.prefix}.mlp.{name}")
        draw_mlp(drawing, layer.mlp, f"{layer.prefix}.mlp", place.mlp)


def _draw_mixture(
    drawing: Drawing, mixture: MixtureOfExperts, prefix: str, place: Place, spelling: Spelling
) -> None:
    whole = place.attention.whole
    drawing.whole(mixture.router, f"{prefix}.gate.weight", dtype=place.router, replica=whole)
    if mixture.correction is not None:
        drawing.whole(mixture.correction, f"{prefix}.gate.e_score_correction_bias", replica=whole)
    if mixture.shared is not None and not place.fused_shared:
        draw_mlp(drawing, mixture.shared, f"{prefix}.shared_experts", place.shared)
    draw_experts(
        drawing, place.slots(mixture), f"{prefix}.{spelling.experts}", place.experts, place.orientation
    )
