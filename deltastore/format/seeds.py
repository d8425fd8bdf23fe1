"""The factor by which a tensor's name enters its digest (SPEC section "Digest")."""

from __future__ import annotations

import hashlib

__all__ = ["tensor_seed"]


def tensor_seed(name: str) -> int:
    """The tensor's odd factor: the first 8 bytes of sha256(name), little-endian, with bit 0 set."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") | 1
