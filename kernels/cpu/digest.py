"""The digest of a range of weights at memory speed (SPEC section "Digest")."""

from __future__ import annotations

from typing import Any

import numpy as np

from deltastore.kernels.cpu import _native
from deltastore.kernels.reference.digest import check_range

__all__ = ["digest_range"]


def digest_range(bits: np.ndarray[Any, Any], first: int, seed: int) -> int:
    """The digest of a contiguous range of one tensor, 0..2**64 - 1; what the reference gives, bit for bit.

    ``bits`` is ``(n,)``, C-contiguous, of dtype uint8, uint16, uint32 or uint64 and at any alignment; element
    k has the flat index ``first + k``. One thread, no copy, the GIL is released. Elements of 8 and 16 bits
    take AVX2 where the processor has it; the result does not depend on that.

    Raises InputError: ``wrong_dtype`` or ``wrong_memory`` for such ``bits``, ``bad_argument`` for an index
    outside 0..2**63 - 1 or a seed that is not odd or not below 2**64.
    """
    check_range(bits, first, seed)
    return _native.digest_range(bits, first, seed)
