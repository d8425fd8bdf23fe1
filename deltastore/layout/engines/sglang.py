"""How SGLang holds a model (0.5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from deltastore.errors import InputError
from deltastore.format.dtypes import Dtype
from deltastore.layout.drawing import Drawing
from deltastore.layout.engines.arguments import check_degrees, check_rank, element_of, experts_of
from deltastore.layout.engines.decoder import Place, Spelling, draw_layers
from deltastore.layout.engines.experts import STANDARD, TRANSPOSED, UP_FIRST, Orientation, orientation_named
from deltastore.layout.engines.stages import late_stage, linear_experts
from deltastore.layout.families import model_of
from deltastore.layout.families.config import AnyConfig
from deltastore.layout.model import GatedMlp, MixtureOfExperts, Model
from deltastore.layout.pieces import Layout
from deltastore.layout.share import Share
from deltastore.layout.vocabulary import VOCABULARY_MULTIPLE, draw_vocabulary, padded_to

__all__ = ["sglang"]

_HEAD_ON_EVERY_STAGE: Final = frozenset({"llama", "qwen3_moe"})
"""Models that make the head on every stage, needed there or not."""

_NEVER_TIED: Final = frozenset({"qwen3_moe"})
"""Models whose head has its own memory even where the configuration ties it."""

_WITH_OUTPUT_BIAS: Final = frozenset({"llama", "qwen3", "qwen3_moe"})

_WITHOUT_DP: Final = frozenset({"llama", "qwen2"})
"""Models whose attention is always cut by all of tp."""

_EXPERTS: Final[dict[str, Orientation]] = {
    "standard": STANDARD,
    "transposed": TRANSPOSED,
    "up_first": UP_FIRST,
    "triton": STANDARD,
    "triton_kernel": TRANSPOSED,
    "flashinfer_cutlass": UP_FIRST,
}
"""What ``experts=`` may be: what it looks like, or the name of a MoE runner backend that wants it so."""


def sglang(
    config: AnyConfig | Model,
    *,
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    ep: int = 1,
    rank: int = 0,
    experts: str = "standard",
    router: str | None = None,
    norms: str | None = None,
    embedding: str | None = None,
    fused_shared: bool = False,
) -> Layout:
    """The layout of process ``rank`` = pp_rank * tp + tp_rank, BF16 and not quantised.

    ``config``: as ``model_of`` takes it. ``dp``: ``--dp-size`` with ``--enable-dp-attention``, part of tp:
    attention is cut tp / dp times. ``ep``: ``--ep-size``, also part of tp: experts are cut tp / ep times.
    ``experts``: how the MoE runner backend wants them, "standard" (triton), "transposed" (triton_kernel) or
    "up_first" (flashinfer_cutlass), or its name. ``router``, ``norms``, ``embedding``: "F32" where the engine
    holds them so (``--rl-on-policy-target``). ``fused_shared``: the shared expert is the last of the others,
    as SGLang does for DeepSeek-V3 with ep 1 unless told ``--disable-shared-experts-fusion``.

    Raises ``InputError``: "bad_layout" for a degree that does not divide, naming parameter and numbers;
    "private_layout", "bad_argument", "unknown_model".
    """
    check_degrees(tp=tp, pp=pp, dp=dp, ep=ep)
    check_rank(rank, tp=tp, pp=pp)
    model = model_of(config)
    _check_parts(model, tp, dp, ep)
    p, t = divmod(rank, tp)
    drawing = Drawing(
        f"sglang tp={tp} pp={pp} dp={dp} ep={ep} rank={rank}",
        model.tensors(),
        aliases=model.aliases,
        unheld=model.unheld,
    )
    place = Place(
        attention=Share(t % (tp // dp), tp // dp, t // (tp // dp)),
        mlp=Share(t, tp),
        shared=Share(t, tp),
        experts=Share(t % (tp // ep), tp // ep),
        slots=_slots(model, ep, t // (tp // ep), fused_shared),
        orientation=orientation_named(experts, _EXPERTS),
        fused_shared=fused_shared,
        router=element_of("router", router),
        norms=element_of("norms", norms),
        embedding=element_of("embedding", embedding),
    )
    spelling = Spelling(
        latent="fused_qkv_a_proj_with_mqa",
        experts="experts",
        output_bias=model.architecture in _WITH_OUTPUT_BIAS,
        mlp_bias=False,
    )
    layers = late_stage(len(model.layers), pp, p)
    draw_layers(drawing, (model.layers[number] for number in layers), place, spelling)
    _draw_ends(drawing, model, place, pp, p, dp)
    return drawing.done()


def _check_parts(model: Model, tp: int, dp: int, ep: int) -> None:
    for name, degree in (("dp", dp), ("ep", ep)):
        if tp % degree:
            raise InputError("bad_layout", f"{name} {degree} does not divide tp {tp}, which it is a part of")
    count = experts_of(model)
    if ep > 1 and (count == 0 or count % ep):
        raise InputError("bad_layout", f"ep {ep} does not divide the {count} experts of the model")
    if dp > 1 and model.architecture in _WITHOUT_DP:
        raise InputError(
            "bad_layout", f"dp {dp}: SGLang has no data-parallel attention for {model.architecture}; say dp=1"
        )


def _slots(
    model: Model, ep: int, ep_rank: int, fused_shared: bool
) -> Callable[[MixtureOfExperts], list[tuple[GatedMlp, int]]]:
    """The experts of this process; a shared one that is among them is a copy in every process."""
    mine = linear_experts(experts_of(model), ep, ep_rank)

    def slots(mixture: MixtureOfExperts) -> list[tuple[GatedMlp, int]]:
        held = [(mixture.experts[number], 0) for number in mine]
        return [*held, (_as_expert(mixture), ep_rank)] if fused_shared and mixture.shared else held

    return slots


def _as_expert(mixture: MixtureOfExperts) -> GatedMlp:
    shared = mixture.shared
    if shared is None or shared.gate.weight.shape != mixture.experts[0].gate.weight.shape:
        raise InputError("bad_layout", "fused_shared: the shared expert is not as large as the others")
    return shared


def _draw_ends(drawing: Drawing, model: Model, place: Place, pp: int, p: int, dp: int) -> None:
    """Embedding, last norm and head, where this stage has them.

    The embedding goes with attention, the head with all of tp.
    """
    last = p == pp - 1
    before = pp - 1 - p
    if p == 0:
        _draw_rows(drawing, model, place.attention, dtype=place.embedding)
    if last:
        drawing.whole(model.norm, dtype=place.norms, replica=place.attention.whole)
    own = not model.tied or pp > 1 or model.architecture in _NEVER_TIED
    if not own:
        drawing.tie(model.head.name, model.embedding.name)
    elif last or (model.architecture in _HEAD_ON_EVERY_STAGE and not model.tied):
        first = dp if model.tied else 0
        share = Share(place.mlp.rank, place.mlp.size, first + before)
        _draw_rows(drawing, model, share, head=True)


def _draw_rows(
    drawing: Drawing, model: Model, share: Share, *, head: bool = False, dtype: Dtype | None = None
) -> None:
    padded = padded_to(model.vocabulary, VOCABULARY_MULTIPLE)
    if padded % share.size:
        padded = padded_to(model.vocabulary, VOCABULARY_MULTIPLE * share.size)
    tensor = model.head if head and not model.tied else model.embedding
    param = model.head.name if head else model.embedding.name
    draw_vocabulary(drawing, tensor, param, share, padded, dtype=dtype)
