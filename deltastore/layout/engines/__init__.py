"""How inference engines hold a model in memory, drawn from a configuration alone."""

from __future__ import annotations

from deltastore.layout.engines.sglang import sglang
from deltastore.layout.engines.vllm import vllm

__all__ = ["sglang", "vllm"]
