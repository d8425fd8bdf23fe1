"""Inverting where weights and moments stand: from a GPU only bits cross to the host, and not the moments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deltastore.kernels.blocks import Blocks
from deltastore.kernels.inversion import Inverted, Span
from deltastore.kernels.triton import invert

__all__ = ["invert_on_device"]


def invert_on_device(
    blocks: Blocks,
    spans: Sequence[Span],
    rules: np.ndarray[Any, Any],
    wanted: NDArray[np.uint64],
    new: NDArray[np.uint16],
    old: NDArray[np.uint16],
) -> Inverted:
    """As ``kernels.cpu.invert``: torch tensors of one GPU in ``spans``, ``new`` and ``old`` on the host."""
    size = blocks.elements
    there = torch.empty((2, size), dtype=torch.int16, device=spans[0].master.device)
    found = invert(blocks, spans, rules, wanted, there[0], there[1])
    here = there.cpu().numpy().view(np.uint16)
    new[:size], old[:size] = here
    return found
