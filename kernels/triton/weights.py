"""The weights of the digest, on the host as a table and inside kernels (SPEC section "Digest")."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray

from deltastore.kernels.reference.digest import BLOCK
from deltastore.kernels.reference.digest import mix as mix_values

__all__ = ["block_weight", "mix", "weight_table", "weights_at"]

_TABLE_STATE: Final = np.uint64(0x64656C746173746F)

GAMMA = tl.constexpr(0x9E3779B97F4A7C15)
FIRST = tl.constexpr(0xBF58476D1CE4E5B9)
SECOND = tl.constexpr(0x94D049BB133111EB)


def weight_table() -> NDArray[np.int64]:
    """T: int64 (2048,), the bits of what the first 2048 indexes weigh without their block's factor."""
    constants = mix_values(_TABLE_STATE + np.arange(BLOCK, dtype=np.uint64)) | np.uint64(1)
    return constants.view(np.int64)


@triton.jit
def mix(values: tl.tensor) -> Any:
    """SplitMix64's finaliser of uint64 values."""
    z = values + GAMMA
    z = (z ^ (z >> 30)) * FIRST
    z = (z ^ (z >> 27)) * SECOND
    return z ^ (z >> 31)


@triton.jit
def block_weight(blocks: tl.tensor) -> Any:
    """The factor that the 2048 elements of each block (int64 number) share."""
    return mix(blocks.to(tl.uint64)) | 1


@triton.jit
def weights_at(flat: tl.tensor, weights: tl.tensor, valid: tl.tensor) -> Any:
    """The weight of each flat index (int64), without the tensor's seed; ``weights`` points to T."""
    within = tl.load(weights + (flat & 2047), mask=valid, other=0).to(tl.uint64, bitcast=True)
    return within * block_weight(flat >> 11)
