"""Weights of the model before the first step, and gradients: made up, and the same wherever they are made."""

from __future__ import annotations

import zlib

import torch

from .model import tensor_shapes

__all__ = ["gradient_of", "initial_weights"]


def initial_weights() -> dict[str, torch.Tensor]:
    """The whole checkpoint in BF16: norms of one, biases of zero."""
    weights = {}
    for name, shape in tensor_shapes().items():
        if name.endswith("norm.weight"):
            tensor = torch.ones(shape)
        elif name.endswith(".bias"):
            tensor = torch.zeros(shape)
        else:
            tensor = torch.randn(shape, generator=_random(name)) * 0.02
        weights[name] = tensor.bfloat16()
    return weights


def gradient_of(name: str, step: int, replica: int) -> torch.Tensor:
    """A whole tensor's gradient from one replica's data: of any size, and zero for unseen tokens."""
    random = _random(f"{name} {step} {replica}")
    shape = tensor_shapes()[name]
    sizes = 10.0 ** torch.empty(shape).uniform_(-9, 0, generator=random)
    gradient = torch.randn(shape, generator=random) * sizes
    if name == "model.embed_tokens.weight":
        gradient[torch.rand(shape[0], generator=random) < 0.7] = 0
    return gradient


def _random(text: str) -> torch.Generator:
    return torch.Generator().manual_seed(zlib.crc32(text.encode()))
