"""How the processes of Megatron-core hold the tensors of a model."""

from __future__ import annotations

from deltastore.layout.trainers.megatron.drawing import Experts, Implementation, megatron

__all__ = ["Experts", "Implementation", "megatron"]
