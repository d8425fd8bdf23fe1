"""Experts in Megatron-core: grouped, one after another, or in the legacy kernel's two matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from deltastore.layout.drawing import Drawing
from deltastore.layout.model import GatedMlp, MixtureOfExperts
from deltastore.layout.share import Share
from deltastore.layout.trainers.megatron.linears import draw_gated, draw_whole
from deltastore.layout.trainers.megatron.place import Place

__all__ = ["Experts", "draw_mixture"]

Experts = Literal["grouped", "sequential", "legacy"]


def draw_mixture(
    drawing: Drawing, place: Place, mixture: MixtureOfExperts, prefix: str, *, experts: Experts
) -> None:
    """Router, experts of this rank, shared experts."""
    draw_whole(drawing, place, mixture.router, f"{prefix}.router.weight")
    draw_whole(drawing, place, mixture.correction, f"{prefix}.router.expert_bias")
    name = f"{prefix}.experts"
    first, count = Share(place.ep_rank, place.ep).cut(len(mixture.experts), "experts", name)
    mine = mixture.experts[first : first + count]
    if experts == "legacy":
        _draw_legacy(drawing, place, mine, name)
    else:
        for number, expert in enumerate(mine):
            _draw_expert(drawing, place, expert, *_names(name, number, experts))
    if mixture.shared is not None:
        draw_gated(drawing, place, mixture.shared, f"{prefix}.shared_experts")


def _names(prefix: str, number: int, experts: Experts) -> tuple[str, str]:
    if experts == "grouped":
        return f"{prefix}.linear_fc1.weight{number}", f"{prefix}.linear_fc2.weight{number}"
    of = f"{prefix}.local_experts.{number}"
    return f"{of}.linear_fc1.weight", f"{of}.linear_fc2.weight"


def _draw_expert(drawing: Drawing, place: Place, expert: GatedMlp, first: str, second: str) -> None:
    gate, up, down = expert.gate.weight, expert.up.weight, expert.down.weight
    low, rows = place.expert_share.cut(gate.shape[0], "rows", first)
    replica = place.expert_replica
    drawing.param(first, (2 * rows, gate.shape[1]), gate.dtype)
    drawing.rows(gate, low, rows, first, 0, replica=replica)
    drawing.rows(up, low, rows, first, rows, replica=replica)
    drawing.param(second, (down.shape[0], rows), down.dtype)
    drawing.columns(down, low, rows, second, replica=replica)


def _draw_legacy(drawing: Drawing, place: Place, experts: Sequence[GatedMlp], prefix: str) -> None:
    """Transposed, expert by expert, in two matrices whose own shapes say otherwise."""
    first, second = f"{prefix}.weight1", f"{prefix}.weight2"
    count, weight = len(experts), experts[0].gate.weight
    dtype, hidden = weight.dtype, weight.shape[1]
    low, rows = place.expert_share.cut(weight.shape[0], "rows", first)
    drawing.param(first, (hidden, count * 2 * rows), dtype, view=(count, hidden, 2 * rows))
    drawing.param(second, (count * rows, hidden), dtype, view=(count, rows, hidden))
    for number, expert in enumerate(experts):
        for linear, at in ((expert.gate, 0), (expert.up, rows)):
            drawing.place(
                linear.weight,
                first,
                lo=(low, 0),
                size=(rows, hidden),
                at=(number, 0, at),
                axes=(2, 1),
                replica=place.expert_replica,
            )
        drawing.place(
            expert.down.weight,
            second,
            lo=(0, low),
            size=(hidden, rows),
            at=(number, 0, 0),
            axes=(2, 1),
            replica=place.expert_replica,
        )
