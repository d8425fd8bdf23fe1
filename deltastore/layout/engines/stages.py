"""Which layers a stage of a pipeline has, and which experts a process."""

from __future__ import annotations

from collections.abc import Sequence

from deltastore.errors import InputError

__all__ = ["early_stage", "late_stage", "linear_experts", "round_robin_experts"]


def early_stage(layers: int, stages: int, stage: int) -> range:
    """vLLM: layers that are left over go one by one to the stages before the last, from behind."""
    _check(layers, stages)
    each, left = divmod(layers, stages)
    counts = [each + (stages - 1 - left <= number < stages - 1) for number in range(stages)]
    return _part(counts, stage)


def late_stage(layers: int, stages: int, stage: int) -> range:
    """SGLang: layers that are left over go one by one to the last stages."""
    _check(layers, stages)
    each, left = divmod(layers, stages)
    return _part([each + (number >= stages - left) for number in range(stages)], stage)


def linear_experts(experts: int, parts: int, part: int) -> range:
    """Neighbouring experts; the first ``experts % parts`` processes have one more."""
    each, left = divmod(experts, parts)
    return _part([each + (number < left) for number in range(parts)], part)


def round_robin_experts(experts: int, parts: int, part: int) -> range:
    """Every ``parts``-th expert."""
    return range(part, experts, parts)


def _check(layers: int, stages: int) -> None:
    if stages > layers:
        raise InputError(
            "bad_layout",
            f"pp {stages} leaves stages without a layer: the model has {layers}; choose a pp of at most that",
        )


def _part(counts: Sequence[int], number: int) -> range:
    first = sum(counts[:number])
    return range(first, first + counts[number])
