"""Arguments of the compiled kernels, checked and brought into the memory that they read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import InputError
from deltastore.kernels.rows import CHUNK, ChunkList

__all__ = ["chunk_numbers"]


def chunk_numbers(chunks: ChunkList) -> NDArray[np.uint32]:
    """Chunks (n,) of dtype ``CHUNK`` as (n, 2) uint32, contiguous. Raises InputError ``wrong_dtype``."""
    if chunks.dtype != CHUNK or chunks.ndim != 1:
        raise InputError(
            "wrong_dtype",
            f"chunks are (n,) of dtype CHUNK, not {chunks.shape} of {chunks.dtype}; use chunk_list",
        )
    numbers: NDArray[Any] = np.ascontiguousarray(chunks).view("<u4")
    return numbers.reshape(-1, 2)
