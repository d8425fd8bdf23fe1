"""The layout of one process of Megatron-core, from a configuration and its ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

from deltastore.errors import InputError
from deltastore.format.table import TensorSpec
from deltastore.layout.drawing import Drawing
from deltastore.layout.families import model_of
from deltastore.layout.families.config import AnyConfig
from deltastore.layout.integers import check_integer
from deltastore.layout.model import Layer, MixtureOfExperts, Model
from deltastore.layout.pieces import Layout
from deltastore.layout.share import Share
from deltastore.layout.trainers.megatron.attention import draw_attention
from deltastore.layout.trainers.megatron.experts import Experts, draw_mixture
from deltastore.layout.trainers.megatron.linears import draw_gated, draw_whole
from deltastore.layout.trainers.megatron.place import Place
from deltastore.layout.vocabulary import draw_vocabulary, padded_to

__all__ = ["Experts", "Implementation", "megatron"]

Implementation = Literal["transformer_engine", "local"]
"""As ``--transformer-impl`` has it. It says where norms stand, and whether MLA's projections down are cut."""


def megatron(
    config: AnyConfig | Model,
    *,
    tp: int = 1,
    pp: int = 1,
    vpp: int = 1,
    ep: int = 1,
    etp: int = 1,
    tp_rank: int = 0,
    pp_rank: int = 0,
    vpp_rank: int | None = None,
    ep_rank: int = 0,
    etp_rank: int = 0,
    experts: Experts = "grouped",
    implementation: Implementation = "transformer_engine",
    vocab_multiple: int = 128,
    layers: Sequence[int] | None = None,
    replica: int = 0,
    expert_replica: int | None = None,
) -> Layout:
    """Parameters as ``named_parameters()`` of the process's GPT model gives them, without wrappers' prefixes.

    Sizes and ranks of the groups for tensors (``tp``), pipeline stages (``pp``), model chunks of a stage
    (``vpp``), experts (``ep``) and tensors of experts (``etp``, which Megatron sets to ``tp`` unless told
    otherwise). ``vpp_rank``: only that chunk, a module of its own; None: all of them, with ``0.``, ``1.``,
    ... before their names where there are several, as a ``ModuleList`` gives them. ``vocab_multiple``: the
    vocabulary is padded to a multiple of it for each rank (``--make-vocab-size-divisible-by``). ``layers``:
    how many each model chunk has, in the order of the model, where those are not equal.

    ``replica``: this process's rank in its data parallel group, context parallel ranks included.
    ``expert_replica``: its rank in the expert data parallel group; by default that of Megatron's own order of
    ranks. Over all processes of a world each element is held once with replica 0, which publishes it.

    Raises ``InputError``: ``bad_layout`` naming the parameter and the numbers that do not fit,
    ``unknown_model``, ``bad_argument``.
    """
    _check_names(experts, implementation, vocab_multiple)
    model = model_of(config)
    place = Place(
        tp=tp,
        pp=pp,
        vpp=vpp,
        ep=ep,
        etp=etp,
        tp_rank=tp_rank,
        pp_rank=pp_rank,
        vpp_rank=0 if vpp_rank is None else vpp_rank,
        ep_rank=ep_rank,
        etp_rank=etp_rank,
        replica=replica,
        expert_replica=0 if expert_replica is None else expert_replica,
    )
    if expert_replica is None:
        place = replace(place, expert_replica=place.share.whole // (ep * etp))
    counts = _counts(len(model.layers), place, layers)
    drawing = Drawing(place.name, model.tensors(), aliases=model.aliases, unheld=model.unheld)
    for number in range(vpp) if vpp_rank is None else (vpp_rank,):
        chunk = _Chunk(
            drawing,
            model,
            replace(place, vpp_rank=number),
            prefix=f"{number}." if vpp_rank is None and vpp > 1 else "",
            experts=experts,
            fused=implementation == "transformer_engine",
            multiple=vocab_multiple,
        )
        chunk.draw(counts)
    return drawing.done()


def _check_names(experts: str, implementation: str, multiple: int) -> None:
    for given, known in ((experts, get_args(Experts)), (implementation, get_args(Implementation))):
        if given not in known:
            raise InputError("bad_argument", f"{given!r:.80} is none of {', '.join(map(repr, known))}")
    check_integer("vocab_multiple", multiple, least=1)


def _counts(total: int, place: Place, layers: Sequence[int] | None) -> tuple[int, ...]:
    """Number of layers of each model chunk, in the order of the model."""
    chunks = place.pp * place.vpp
    if layers is not None and not isinstance(layers, Sequence):
        raise InputError("bad_argument", f"layers={layers!r:.40}: give a number for each model chunk")
    given = "equal parts"
    counts: tuple[int, ...] = ()
    if layers is not None:
        given, counts = f"layers={list(layers)!r:.80}", tuple(layers)
    elif total % chunks == 0:
        counts = (total // chunks,) * chunks
    for count in counts:
        check_integer("layers", count)
    if len(counts) != chunks or sum(counts) != total:
        raise InputError(
            "bad_layout",
            f"{given} are not {total} layers in {chunks} model chunks ({place.pp} stages of {place.vpp}): "
            "say with layers= how many each has",
        )
    return counts


class _Chunk:
    """One model chunk of one process."""

    def __init__(
        self,
        drawing: Drawing,
        model: Model,
        place: Place,
        *,
        prefix: str,
        experts: Experts,
        fused: bool,
        multiple: int,
    ) -> None:
        self._drawing = drawing
        self._model = model
        self._place = place
        self._prefix = prefix
        self._experts = experts
        self._fused = fused
        self._multiple = multiple

    def draw(self, counts: tuple[int, ...]) -> None:
        """Embedding, layers, norm and head, as far as the chunk has them. Layers are counted from 0 in it."""
        model, place = self._model, self._place
        first = sum(counts[: place.chunk])
        if place.is_first:
            self._draw_embedding("embedding.word_embeddings.weight", copy=0)
        for local in range(counts[place.chunk]):
            self._draw_layer(model.layers[first + local], f"{self._prefix}decoder.layers.{local}")
        if not place.is_last:
            return
        draw_whole(self._drawing, place, model.norm, f"{self._prefix}decoder.final_layernorm.weight")
        name = "output_layer.weight"
        if not model.tied:
            self._draw_vocabulary(model.head, name, copy=place.replica)
        elif not place.is_first:
            self._draw_embedding(name, copy=1)

    def _draw_embedding(self, name: str, *, copy: int) -> None:
        """A tied one has a second copy on the last of several stages."""
        model, place = self._model, self._place
        copies = 2 if model.tied and place.pp * place.vpp > 1 else 1
        self._draw_vocabulary(model.embedding, name, copy=place.replica * copies + copy)

    def _draw_vocabulary(self, tensor: TensorSpec, name: str, *, copy: int) -> None:
        place = self._place
        padded = padded_to(tensor.shape[0], self._multiple * place.tp)
        share = Share(place.tp_rank, place.tp, copy)
        draw_vocabulary(self._drawing, tensor, self._prefix + name, share, padded)

    def _draw_layer(self, layer: Layer, prefix: str) -> None:
        drawing, place = self._drawing, self._place
        draw_attention(drawing, place, layer, prefix, fused=self._fused)
        mixed = isinstance(layer.mlp, MixtureOfExperts)
        norm = "mlp.linear_fc1.layer_norm_weight" if self._fused and not mixed else "pre_mlp_layernorm.weight"
        draw_whole(drawing, place, layer.post_norm, f"{prefix}.{norm}")
        if isinstance(layer.mlp, MixtureOfExperts):
            draw_mixture(drawing, place, layer.mlp, f"{prefix}.mlp", experts=self._experts)
        else:
            draw_gated(drawing, place, layer.mlp, f"{prefix}.mlp")
