"""The hash of a plan: of everything that two processes could be of two minds about, and of nothing else."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

from deltastore.format.dtypes import DTYPES
from deltastore.format.table import TensorSpec
from deltastore.layout.drawing import Drawing
from deltastore.layout.engines.vllm import vllm
from deltastore.layout.pieces import Layout
from deltastore.layout.planning import make_plan
from deltastore.layout.trainers.transformers import transformers
from tests.doubles.configs import QWEN3_30B

SPEC = TensorSpec("w", (4, 2), DTYPES["BF16"])
SMALL = {**QWEN3_30B, "num_hidden_layers": 1, "num_experts": 4, "hidden_size": 64, "vocab_size": 128}


def halves(first: int) -> Layout:
    """Rows of the tensor, the half from ``first`` on at the top."""
    drawing = Drawing("halves", [SPEC])
    drawing.param("p", (4, 2), SPEC.dtype)
    drawing.rows(SPEC, first, 2, "p", 0)
    drawing.rows(SPEC, 2 - first, 2, "p", 2)
    return drawing.done()


def whole(name: str, replica: int = 0) -> Layout:
    drawing = Drawing("whole", [SPEC])
    drawing.whole(SPEC, name, replica=replica)
    return drawing.done()


def test_it_is_what_the_specification_says() -> None:
    rows = [
        ["w", [0, 0], [2, 2], 1, ["q", [0, 0], [0, 1]], ["p", [2, 0], [0, 1]]],
        ["w", [2, 0], [2, 2], 1, ["q", [2, 0], [0, 1]], ["p", [0, 0], [0, 1]]],
    ]
    text = json.dumps(rows, separators=(",", ":")).encode()
    plan = make_plan([whole("q", replica=1), whole("q")], halves(2))
    assert plan.sha256 == hashlib.sha256(text).hexdigest()


def test_another_source_place_or_parameter_is_another_plan() -> None:
    plans = [
        make_plan([whole("q")], halves(0)),
        make_plan([whole("q")], halves(2)),
        make_plan([whole("other")], halves(2)),
        make_plan([whole("q", replica=1), whole("q")], halves(2)),
        make_plan([halves(2)], halves(2)),
    ]
    assert len({plan.sha256 for plan in plans}) == len(plans)


def test_the_order_of_pieces_and_the_names_of_layouts_are_no_matter() -> None:
    source, target = whole("q"), halves(2)
    turned = replace(target, pieces=target.pieces[::-1], name="another name")
    assert make_plan([source], turned).sha256 == make_plan([source], target).sha256


def test_experts_in_the_other_order_are_another_plan() -> None:
    """The same elements for the same process: only where they go tells."""
    source = transformers(SMALL)
    plans = [
        make_plan([source], vllm(SMALL, tp=2, rank=1, experts=name)) for name in ("standard", "up_first")
    ]
    assert {plan.copies[0].tensor for plan in plans} == {"lm_head.weight"}
    assert plans[0].sha256 != plans[1].sha256
