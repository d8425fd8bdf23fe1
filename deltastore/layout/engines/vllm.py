"""How vLLM holds a model (0.26 and later)."""

from __future__ import annotations

from typing import Final

from deltastore.errors import InputError
from deltastore.layout.drawing import Drawing
from deltastore.layout.engines.arguments import check_degrees, check_rank, element_of, experts_of
from deltastore.layout.engines.decoder import Place, Spelling, draw_layers
from deltastore.layout.engines.experts import STANDARD, TRANSPOSED, UP_FIRST, Orientation, orientation_named
from deltastore.layout.engines.stages import early_stage, linear_experts, round_robin_experts
from deltastore.layout.families import model_of
from deltastore.layout.families.config import AnyConfig
from deltastore.layout.model import GatedMlp, MixtureOfExperts, Model
from deltastore.layout.pieces import Layout
from deltastore.layout.share import Share
from deltastore.layout.vocabulary import VOCABULARY_MULTIPLE, draw_vocabulary, padded_to

__all__ = ["vllm"]

_ON_EVERY_STAGE: Final = frozenset({"qwen3_moe"})
"""Models that make embedding, last norm and head on every stage, needed there or not."""

_WITH_GROUPS: Final = frozenset({"deepseek_v3"})
"""Models whose router knows groups of experts; of others vLLM places experts linearly, always."""

_WITH_BIASES: Final = frozenset({"llama"})
"""Models whose output and MLP may have biases."""

_PLACEMENTS: Final = {"linear": linear_experts, "round_robin": round_robin_experts}

_EXPERTS: Final[dict[str, Orientation]] = {
    "standard": STANDARD,
    "transposed": TRANSPOSED,
    "up_first": UP_FIRST,
    "triton": STANDARD,
    "xpu": TRANSPOSED,
    "flashinfer_cutlass": UP_FIRST,
}
"""What ``experts=`` may be: what it looks like, or the name of a MoE backend that wants it so."""


def vllm(
    config: AnyConfig | Model,
    *,
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    ep: int = 1,
    rank: int = 0,
    placement: str = "linear",
    experts: str = "standard",
    router: str | None = None,
    norms: str | None = None,
) -> Layout:
    """The layout of process ``rank`` = (dp_rank * pp + pp_rank) * tp + tp_rank, BF16 and not quantised.

    ``config``: as ``model_of`` takes it. ``ep``: tp * dp with ``--enable-expert-parallel``, else 1; without
    it, the experts of a model are cut tp * dp times. ``placement``: the one that the engine says in its log,
    "linear" or "round_robin". ``experts``: how the MoE backend wants them, "standard" (triton), "up_first"
    (flashinfer_cutlass) or "transposed" (xpu), or its name. ``router``, ``norms``: "F32" where the engine
    holds them so.

    Raises ``InputError``: "bad_layout" for a degree that does not divide, naming parameter and numbers;
    "private_layout", "bad_argument", "unknown_model".
    """
    check_degrees(tp=tp, pp=pp, dp=dp, ep=ep)
    check_rank(rank, tp=tp, pp=pp, dp=dp)
    model = model_of(config)
    group, t = divmod(rank, tp)
    d, p = divmod(group, pp)
    drawing = Drawing(
        f"vllm tp={tp} pp={pp} dp={dp} ep={ep} rank={rank}",
        model.tensors(),
        aliases=model.aliases,
        unheld=model.unheld,
    )
    attention = Share(t, tp, d)
    mine = _expert_numbers(model, placement, tp * dp, ep, d * tp + t)

    def slots(mixture: MixtureOfExperts) -> list[tuple[GatedMlp, int]]:
        return [(mixture.experts[number], 0) for number in mine]

    place = Place(
        attention=attention,
        mlp=attention,
        # With expert parallelism over several engines tokens are cut, and shared experts are not.
        shared=Share(0, 1, attention.whole) if ep > 1 and tp > 1 and dp > 1 else attention,
        experts=Share(0, 1) if ep > 1 else Share(d * tp + t, tp * dp),
        slots=slots,
        orientation=orientation_named(experts, _EXPERTS),
        router=element_of("router", router),
        norms=element_of("norms", norms),
    )
    biased = model.architecture in _WITH_BIASES
    spelling = Spelling(
        latent="fused_qkv_a_proj", experts="experts.routed_experts", output_bias=biased, mlp_bias=biased
    )
    layers = early_stage(len(model.layers), pp, p)
    draw_layers(drawing, (model.layers[number] for number in layers), place, spelling)
    _draw_ends(drawing, model, place, pp, p, dp)
    return drawing.done()


def _expert_numbers(model: Model, placement: str, most: int, ep: int, ep_rank: int) -> range:
    """The experts of this process, in the order in which it has them."""
    if not isinstance(placement, str) or placement not in _PLACEMENTS:
        raise InputError(
            "bad_argument", f"placement={placement!r:.80} is not known; known are {', '.join(_PLACEMENTS)}"
        )
    count = experts_of(model)
    if ep == 1:
        return range(count)
    if ep != most:
        raise InputError("bad_layout", f"ep {ep} is neither 1 nor tp x dp = {most}, all that vLLM can do")
    if ep > count:
        raise InputError("bad_layout", f"ep {ep} leaves processes without an expert: the model has {count}")
    if placement == "round_robin" and model.architecture not in _WITH_GROUPS:
        raise InputError(
            "bad_layout",
            f"vLLM places the experts of {model.architecture} linearly even if told round_robin, as its "
            'router knows no groups of experts; say placement="linear"',
        )
    return _PLACEMENTS[placement](count, ep, ep_rank)


def _draw_ends(drawing: Drawing, model: Model, place: Place, pp: int, p: int, dp: int) -> None:
    """Embedding, last norm and head, where this stage has them."""
    every = model.architecture in _ON_EVERY_STAGE
    share = place.attention
    padded = padded_to(model.vocabulary, VOCABULARY_MULTIPLE)
    last = p == pp - 1
    before = pp - 1 - p
    if p == 0 or every or (last and model.tied):
        copy = Share(share.rank, share.size, p * dp + share.copy)
        draw_vocabulary(drawing, model.embedding, model.embedding.name, copy, padded)
    if not (last or every):
        return
    replica = before * dp * share.size + share.whole
    drawing.whole(model.norm, dtype=place.norms, replica=replica)
    if model.tied:
        drawing.tie(model.head.name, model.embedding.name)
    else:
        copy = Share(share.rank, share.size, before * dp + share.copy)
        draw_vocabulary(drawing, model.head, model.head.name, copy, padded)
