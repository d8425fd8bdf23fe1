"""How processes hold a model: layouts of trainers and engines, drawn from a configuration.

``layouts.vllm(config, tp=8, rank=3)`` for a reader, ``layouts.megatron(config, tp=4, ...)`` for a writer. A
configuration is a mapping, the path of a Hugging Face ``config.json`` or of its folder, or an object with
``to_dict()`` as ``transformers`` has them; no weights are needed, and no torch.
"""

from __future__ import annotations

from deltastore.layout.drawing import Drawing
from deltastore.layout.engines.sglang import sglang
from deltastore.layout.engines.vllm import vllm
from deltastore.layout.families import known_architectures, model_of
from deltastore.layout.laid_parts import FlatRun, parts_of
from deltastore.layout.layout_object import LayoutObject
from deltastore.layout.pieces import Hole, Layout, Param, Piece
from deltastore.layout.planning import Plan, check_world, make_plan
from deltastore.layout.trainers.fully_sharded import fully_sharded
from deltastore.layout.trainers.megatron import megatron
from deltastore.layout.trainers.transformers import identity, transformers

__all__ = [
    "Drawing",
    "FlatRun",
    "Hole",
    "Layout",
    "LayoutObject",
    "Param",
    "Piece",
    "Plan",
    "check_world",
    "fully_sharded",
    "identity",
    "known_architectures",
    "make_plan",
    "megatron",
    "model_of",
    "parts_of",
    "sglang",
    "transformers",
    "vllm",
]
