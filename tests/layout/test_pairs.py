"""From every trainer to every engine: a plan moves each element that the engine needs, once, and no other.

Small models in ids that no two elements share; shapes of real models by boxes and hashes alone. That trainers
and engines lay parameters out so is proved elsewhere, against their own code.
"""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from deltastore.layout.engines import sglang, vllm
from deltastore.layout.families import model_of
from deltastore.layout.layout_object import LayoutObject
from deltastore.layout.model import Model
from deltastore.layout.pieces import Axes, Layout, Piece
from deltastore.layout.planning import Plan, check_world, make_plan
from deltastore.layout.trainers.fully_sharded import fully_sharded
from deltastore.layout.trainers.megatron import megatron
from deltastore.layout.trainers.transformers import transformers
from tests.doubles.configs import LLAMA_3_8B, QWEN3_8B, QWEN3_30B, QWEN3_235B, SMALL
from tests.layout.reassembling import Ids, held, memory_of, unique_ids
from tests.layout.trainers.megatron_bridge import World

FAMILIES = ("llama", "qwen2-tied", "qwen3-moe", "deepseek")


def small(family: str) -> Model:
    """Two layers, of which one has experts where the family has any; eight of them."""
    config = {**SMALL[family], "num_hidden_layers": 2, "mlp_only_layers": [0]}
    return model_of({**config, **{name: 8 for name in ("num_experts", "n_routed_experts") if name in config}})


Draw = Callable[[Model], list[Layout]]
Engine = Callable[[Model], Layout]

MEGATRON = (
    World(1),
    World(2, 2),
    World(4, 1, 4),
    World(8, 2, 2, 4),
    World(1, 2, 8, 1, copies=2),
    World(4, 2, 2, 2),
    World(2, 1, 4, 2, copies=2),
    World(8, 1, 8),
)


def fsdp(model: Model, ranks: int) -> list[Layout]:
    whole = transformers(model)
    return [fully_sharded(whole, ranks=ranks, rank=rank) for rank in range(ranks)]


def mcore(model: Model, world: World, experts: Any) -> list[Layout]:
    return [megatron(model, **at, experts=experts, vocab_multiple=16) for at in world.ranks()]


def trainers() -> dict[str, Draw]:
    found: dict[str, Draw] = {
        "transformers": lambda model: [transformers(model)],
        "transformers 4": lambda model: [transformers(model, experts="separate")],
    }
    found |= {f"fsdp {ranks}": partial(fsdp, ranks=ranks) for ranks in range(1, 6)}
    kinds = itertools.cycle(("grouped", "sequential", "legacy"))
    found |= {str(world): partial(mcore, world=world, experts=next(kinds)) for world in MEGATRON}
    return found


def engines(family: str) -> Iterator[tuple[str, list[Engine]]]:
    """Ways to run an engine, each with its ranks."""
    sparse = family in ("qwen3-moe", "deepseek")
    orders = ("standard", "up_first") if sparse else ("standard",)
    for tp, order in itertools.product((1, 2, 4, 8, 16), orders):
        for ep in (1, tp) if sparse and 1 < tp <= 8 else (1,):
            for placement in ("linear", "round_robin") if ep > 1 and family == "deepseek" else ("linear",):
                options: dict[str, Any] = {"tp": tp, "ep": ep, "experts": order, "placement": placement}
                yield f"vllm {options}", [partial(vllm, **options, rank=rank) for rank in range(tp)]
        for ep in (1, 2, 4, 8) if sparse else (1,):
            if tp % ep == 0:
                options = {"tp": tp, "ep": ep, "experts": order}
                yield f"sglang {options}", [partial(sglang, **options, rank=rank) for rank in range(tp)]
    for tp in (1, 2):
        options = {"tp": tp, "pp": 2, "router": "F32"}
        yield f"vllm {options}", [partial(vllm, **options, rank=rank) for rank in range(2 * tp)]
        yield f"sglang {options}", [partial(sglang, **options, rank=rank) for rank in range(2 * tp)]
    if sparse:
        options = {"tp": 4, "ep": 2, "experts": "transposed"}
        yield "sglang transposed", [partial(sglang, **options, rank=rank) for rank in range(4)]


def within(piece: Piece, lo: Axes, size: Axes) -> Piece:
    """A box of a tensor as a piece, where it stands in another that has all of it."""
    at = list(piece.at)
    for axis, first, origin in zip(piece.axes, lo, piece.lo, strict=True):
        at[axis] += first - origin
    return replace(piece, lo=lo, size=size, at=tuple(at))


def moved(
    plan: Plan, sources: Sequence[Layout], memory: Sequence[dict[str, Ids]], target: Layout
) -> dict[str, Ids]:
    """The target's parameters after every copy of the plan; -1 where nothing was written, none twice."""
    params = {param.name: np.full(param.shape, -1, np.int64) for param in target.params}
    for copy in plan.copies:
        given = within(sources[copy.source].pieces[copy.given], copy.lo, copy.size)
        taken = within(target.pieces[copy.taken], copy.lo, copy.size)
        there = memory_of(target, taken, params[taken.param])
        assert (there == -1).all()
        there[...] = memory_of(sources[copy.source], given, memory[copy.source][given.param])
    return params


@pytest.mark.parametrize("family", FAMILIES)
def test_what_an_engine_gets_is_what_it_must_have(family: str) -> None:
    """Every pair of trainer and engine; of the engine's ranks another one each time."""
    model = small(family)
    tensors = unique_ids(model.tensors())
    targets: dict[tuple[str, int], tuple[Layout, dict[str, Ids]]] = {}
    for number, (name, draw) in enumerate(trainers().items()):
        sources = draw(model)
        check_world(sources)
        memory = [held(layout, tensors) for layout in sources]
        for kind, ranks in engines(family):
            rank = (number * 7 + 3) % len(ranks)
            if (kind, rank) not in targets:
                layout = ranks[rank](model)
                targets[kind, rank] = layout, held(layout, tensors)
            target, due = targets[kind, rank]
            got = moved(make_plan(sources, target), sources, memory, target)
            for param in due:
                holes = got[param] == -1
                assert not due[param][holes].any(), (name, kind, param)
                assert np.array_equal(got[param][~holes], due[param][~holes]), (name, kind, param)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_rank_of_an_engine_has_its_plan(family: str) -> None:
    """All ranks of every engine, and each element comes from exactly one trainer process."""
    model = small(family)
    sources = mcore(model, World(4, 2, 2, 2), "legacy")
    for kind, ranks in engines(family):
        for draw in ranks:
            target = draw(model)
            plan = make_plan(sources, target)
            assert sum(int(np.prod(copy.size)) for copy in plan.copies) == target.elements, kind


REAL = {
    "Qwen3-8B": (QWEN3_8B, 3),
    "Llama-3-8B": (LLAMA_3_8B, 3),
    "Qwen3-30B-A3B": (QWEN3_30B, 2),
    "Qwen3-235B-A22B": (QWEN3_235B, 2),
}


def real_pairs(config: dict[str, Any], layers: int) -> Iterator[tuple[list[Layout], Layout]]:
    """Trainers and engines as they are run."""
    model = model_of({**config, "num_hidden_layers": layers})
    sparse = "num_experts" in config
    sources = [
        [transformers(model)],
        fsdp(model, 3),
        [megatron(model, **at) for at in World(4, 1, *((8, 1) if sparse else ())).ranks()],
        [megatron(model, **at) for at in World(8, 1, copies=2).ranks()],
    ]
    targets = [
        vllm(model, tp=8, ep=8 if sparse else 1, rank=3),
        sglang(model, tp=4, rank=1),
        vllm(model, tp=16, rank=9),
    ]
    if sparse:
        targets.append(sglang(model, tp=8, ep=4, rank=5, experts="transposed"))
    yield from itertools.product(sources, targets)


@pytest.mark.parametrize("name", REAL)
def test_real_shapes(name: str) -> None:
    """By boxes: all that the engine holds, each element from one process."""
    for sources, target in real_pairs(*REAL[name]):
        plan = make_plan(sources, target)
        assert sum(int(np.prod(copy.size, dtype=np.int64)) for copy in plan.copies) == target.elements
        assert len({(copy.taken, copy.lo) for copy in plan.copies}) == len(plan.copies)


def plans(order: int = 0) -> list[Plan]:
    """Some plans, their layouts' parts drawn in another ``order``."""
    made = []
    for family, world in (("qwen3-moe", World(4, 2, 2, 2)), ("deepseek", World(2, 1, 4, copies=2))):
        model = small(family)
        sources, target = mcore(model, world, "grouped"), vllm(model, tp=4, ep=4, rank=2)
        if order:
            chance = random.Random(order)
            sources = [through_json(layout, chance) for layout in sources]
            target = through_json(target, chance)
        made.append(make_plan(sources, target))
    return made


def through_json(layout: Layout, chance: random.Random) -> Layout:
    """The same layout, as another process has it that was sent it."""
    shuffled = replace(
        layout,
        tensors=tuple(chance.sample(layout.tensors, len(layout.tensors))),
        params=tuple(chance.sample(layout.params, len(layout.params))),
        pieces=tuple(chance.sample(layout.pieces, len(layout.pieces))),
    )
    return LayoutObject.from_bytes(LayoutObject.of(shuffled).to_bytes(), "layout").layout()


def boxes_of(plan: Plan) -> list[tuple[str, Axes, Axes, int]]:
    """A plan without the numbers that layouts give to their pieces."""
    return sorted((copy.tensor, copy.lo, copy.size, copy.source) for copy in plan.copies)


MADE_ELSEWHERE = """
from tests.layout.test_pairs import plans
print(*(plan.sha256 for plan in plans()))
"""


def test_every_process_makes_the_same_plan() -> None:
    """Whatever its hash seed; and in whatever order it got to know the parts of the layouts."""
    here = plans()
    for seed in ("0", "77"):
        done = subprocess.run(
            [sys.executable, "-c", MADE_ELSEWHERE],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == [plan.sha256 for plan in here]
    assert [plan.sha256 for plan in plans(1)] == [plan.sha256 for plan in here]
    assert [boxes_of(plan) for plan in plans(1)] == [boxes_of(plan) for plan in here]
