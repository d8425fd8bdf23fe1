"""A small model for a soak, and what training does to it."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

__all__ = ["Bits", "Tensors", "change", "copied", "fingerprint", "foreign", "new_model"]

_STEPS: Final = (1, 1, 1, 2, 7, 100)
_DENSITIES: Final = (0.0, 0.0, 0.001, 0.02, 0.5)

Bits = np.ndarray[Any, Any]
Tensors = dict[str, Bits]


def new_model(seed: int) -> Tensors:
    """Tensors of two arrays and two single ones, about 400 KB of random bits."""
    random = np.random.default_rng(seed)
    model: Tensors = {
        f"layers.{layer}.weight": random.integers(0, 1 << 16, (64, 96), np.uint16) for layer in range(6)
    }
    model |= {f"layers.{layer}.norm": random.standard_normal(96).astype(np.float32) for layer in range(6)}
    model["embed"] = random.integers(0, 1 << 16, (257, 611), np.uint16)
    model["codes"] = random.integers(0, 256, (33, 17), np.uint8)
    return model


def change(model: Tensors, dice: random.Random) -> None:
    """One optimizer step, in place: of some tensors some elements, by little or by much; perhaps none."""
    generator = np.random.default_rng(dice.getrandbits(64))
    for bits in map(_unsigned, model.values()):
        moved = generator.random(bits.size) < dice.choice(_DENSITIES)
        bits[moved] += generator.choice(np.array(_STEPS, bits.dtype), int(moved.sum()))


def copied(model: Mapping[str, Bits]) -> Tensors:
    """The same bits in other memory."""
    return {name: bits.copy() for name, bits in model.items()}


def foreign(model: Mapping[str, Bits]) -> Tensors:
    """Memory for such tensors that holds no version."""
    strange = copied(model)
    for bits in map(_unsigned, strange.values()):
        bits ^= np.array(0x5A, bits.dtype)
    return strange


def fingerprint(model: Mapping[str, Bits]) -> str:
    """sha256 of names and bits: nothing of deltastore's own is trusted with it."""
    digest = hashlib.sha256()
    for name in sorted(model):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(model[name]).view(np.uint8).data)
    return digest.hexdigest()


def _unsigned(bits: Bits) -> Bits:
    return bits.reshape(-1).view(f"u{bits.itemsize}")
