"""Digests of runs of elements: SPEC section 8."""

from __future__ import annotations

import numpy as np

from deltastore.format.digest import digest_text
from deltastore.format.dtypes import DTYPES
from deltastore.format.seeds import tensor_seed
from deltastore.kernels.reference.digest import digest_range


def vectors() -> object:
    """Tensor name, first flat index and bits -> digest."""
    rng = np.random.default_rng(8)
    rows = []
    for dtype in DTYPES.values():
        for tensor, first, count in (
            ("w", 0, 3),
            ("model.norm.weight", 2046, 5),
            ("\u00e4", 123_456_789, 2),
            ("w", 0, 0),
        ):
            octets = rng.integers(0, 256, count * dtype.itemsize, dtype=np.uint8)
            digest = digest_range(octets.view(dtype.storage), first, tensor_seed(tensor))
            rows.append(
                {
                    "tensor": tensor,
                    "dtype": dtype.name,
                    "first": first,
                    "bits": octets.tobytes().hex(),
                    "digest": digest_text(digest),
                }
            )
    return rows
