"""A small Qwen-like mixture of experts: its checkpoint, and what the parameters of a rank are made of."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .topology import Place, Topology

__all__ = ["Block", "LocalParam", "local_params", "tensor_shapes"]

HIDDEN = 40
HEADS, KV_HEADS, HEAD = 4, 2, 12
INNER = 52
EXPERT_INNER, EXPERTS = 28, 4
VOCABULARY = 150
LAYERS = 2
VOCABULARY_ALIGNMENT = 128

Axes = tuple[int, ...]


@dataclass(frozen=True)
class Block:
    """A box of tensor ``name``, row-major: the next elements of a parameter. "" where it is padding."""

    name: str
    start: Axes
    size: Axes

    @property
    def elements(self) -> int:
        """How many."""
        return math.prod(self.size)


@dataclass(frozen=True)
class LocalParam:
    """A parameter of one rank. ``owner``: whether this rank is the first of those that hold the same."""

    name: str
    blocks: tuple[Block, ...]
    owner: bool = True
    expert: bool = False

    @property
    def elements(self) -> int:
        """How many."""
        return sum(block.elements for block in self.blocks)

    @property
    def decays(self) -> bool:
        """Whether it has two axes: biases and norms have no weight decay."""
        return len(self.blocks[0].size) > 1


def tensor_shapes() -> dict[str, Axes]:
    """Every tensor of the checkpoint."""
    shapes: dict[str, Axes] = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN)}
    for layer in range(LAYERS):
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in _layer_shapes(layer)}
    shapes |= {"model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCABULARY, HIDDEN)}
    return shapes


def _layer_shapes(layer: int) -> Iterator[tuple[str, Axes]]:
    for name, rows in (("q", HEADS * HEAD), ("k", KV_HEADS * HEAD), ("v", KV_HEADS * HEAD)):
        yield f"self_attn.{name}_proj.weight", (rows, HIDDEN)
        yield f"self_attn.{name}_proj.bias", (rows,)
    yield "self_attn.o_proj.weight", (HIDDEN, HEADS * HEAD)
    yield "input_layernorm.weight", (HIDDEN,)
    yield "post_attention_layernorm.weight", (HIDDEN,)
    if not layer:
        yield from _mlp_shapes("mlp.", INNER)
        return
    yield "mlp.gate.weight", (EXPERTS, HIDDEN)
    for expert in range(EXPERTS):
        yield from _mlp_shapes(f"mlp.experts.{expert}.", EXPERT_INNER)


def _mlp_shapes(prefix: str, inner: int) -> Iterator[tuple[str, Axes]]:
    yield f"{prefix}gate_proj.weight", (inner, HIDDEN)
    yield f"{prefix}up_proj.weight", (inner, HIDDEN)
    yield f"{prefix}down_proj.weight", (HIDDEN, inner)


def local_params(topology: Topology, place: Place) -> list[LocalParam]:
    """The parameters of a rank, in the order of the model."""
    embedding = _vocabulary("model.embed_tokens.weight", place.tp, topology.tp)
    params = [LocalParam("embedding.word_embeddings.weight", embedding)]
    for layer in range(LAYERS):
        its, there = f"decoder.layers.{layer}.", f"model.layers.{layer}."
        params += [
            _norm(f"{its}input_layernorm.weight", f"{there}input_layernorm.weight", place),
            *_attention(f"{its}self_attention.", f"{there}self_attn.", place.tp, topology.tp),
            _norm(f"{its}pre_mlp_layernorm.weight", f"{there}post_attention_layernorm.weight", place),
        ]
        if layer:
            params += _experts(f"{its}mlp.", f"{there}mlp.", topology, place)
        else:
            params += _mlp(f"{its}mlp.linear_fc", "", f"{there}mlp.", INNER, place.tp, topology.tp)
    params.append(_norm("decoder.final_layernorm.weight", "model.norm.weight", place))
    params.append(LocalParam("output_layer.weight", _vocabulary("lm_head.weight", place.tp, topology.tp)))
    return params


def _norm(name: str, there: str, place: Place) -> LocalParam:
    return LocalParam(name, (Block(there, (0,), (HIDDEN,)),), owner=place.tp == 0)


def _vocabulary(name: str, rank: int, ranks: int) -> tuple[Block, ...]:
    """Rows of a vocabulary that is padded so that every rank has the same count of them."""
    each = -(-VOCABULARY // (VOCABULARY_ALIGNMENT * ranks)) * VOCABULARY_ALIGNMENT
    first = min(rank * each, VOCABULARY)
    rows = min(each, VOCABULARY - first)
    blocks = (Block(name, (first, 0), (rows, HIDDEN)), Block("", (0, 0), (each - rows, HIDDEN)))
    return tuple(block for block in blocks if block.elements)


def _attention(its: str, there: str, rank: int, ranks: int) -> Iterator[LocalParam]:
    yield LocalParam(
        f"{its}linear_proj.weight", (_columns(f"{there}o_proj.weight", HEADS * HEAD, rank, ranks),)
    )
    yield LocalParam(f"{its}linear_qkv.weight", _grouped(there, ".weight", (HIDDEN,), rank, ranks))
    yield LocalParam(f"{its}linear_qkv.bias", _grouped(there, ".bias", (), rank, ranks))


def _grouped(there: str, kind: str, inner: Axes, rank: int, ranks: int) -> tuple[Block, ...]:
    """Query, key and value heads by query group."""
    blocks = []
    queries = HEADS // KV_HEADS * HEAD
    for group in range(rank * KV_HEADS // ranks, (rank + 1) * KV_HEADS // ranks):
        for name, rows in (("q", queries), ("k", HEAD), ("v", HEAD)):
            start = (group * rows, *(0 for _ in inner))
            blocks.append(Block(f"{there}{name}_proj{kind}", start, (rows, *inner)))
    return tuple(blocks)


def _experts(its: str, there: str, topology: Topology, place: Place) -> Iterator[LocalParam]:
    """The router, which every rank has, and the experts of this one."""
    router = Block(f"{there}gate.weight", (0, 0), (EXPERTS, HIDDEN))
    yield LocalParam(f"{its}router.weight", (router,), owner=place.tp == 0)
    each = EXPERTS // topology.ep
    for local in range(each):
        expert = f"{there}experts.{place.ep * each + local}."
        name, number = f"{its}experts.linear_fc", str(local)
        for param in _mlp(name, number, expert, EXPERT_INNER, place.etp, topology.etp):
            yield replace(param, expert=True)


def _mlp(name: str, number: str, there: str, inner: int, rank: int, ranks: int) -> Iterator[LocalParam]:
    """Gate over up, and down by columns."""
    rows = inner // ranks
    start, size = (rank * rows, 0), (rows, HIDDEN)
    both = tuple(Block(f"{there}{which}_proj.weight", start, size) for which in ("gate", "up"))
    yield LocalParam(f"{name}1.weight{number}", both)
    yield LocalParam(f"{name}2.weight{number}", (_columns(f"{there}down_proj.weight", inner, rank, ranks),))


def _columns(name: str, columns: int, rank: int, ranks: int) -> Block:
    each = columns // ranks
    return Block(name, (0, rank * each), (HIDDEN, each))
