"""Digests of weights (SPEC section "Digest").

    digest = sum over tensors and elements of bits_i * w_i                              mod 2**64
    w_i    = T[i mod 2048] * (mix(i div 2048) | 1) * seed(tensor)

It is additive over chunks, tensors and writers; a patch changes it by sum((new - old) * w). Every weight is
odd, so a single wrong element always shows. It guards against faults, not against attackers.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any, Final

import numpy as np

from deltastore.format.table import Array, TensorTable
from deltastore.kernels.cpu import digest_range
from deltastore.kernels.grid import Box
from deltastore.kernels.reference.digest import position_weights

__all__ = ["MODULUS", "Digester", "digest_text", "tensor_seed"]

Bits = np.ndarray[Any, Any]

MODULUS: Final = 1 << 64


def tensor_seed(name: str) -> int:
    """The tensor's odd factor: the first 8 bytes of sha256(name), little-endian, with bit 0 set."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") | 1


def digest_text(digest: int) -> str:
    """A digest as records write it: 16 lower-case hexadecimal digits."""
    return f"{digest % MODULUS:016x}"


class Digester:
    """Digests of the parts of one table's weights. Seeds are made once per array, when first asked for."""

    def __init__(self, table: TensorTable) -> None:
        self._table = table
        self._seeds: dict[int, np.ndarray[Any, np.dtype[np.uint64]]] = {}

    def seeds(self, array: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """The seed of every member of an array, uint64."""
        if array not in self._seeds:
            names = self._table.arrays[array].names
            self._seeds[array] = np.array([tensor_seed(name) for name in names], dtype=np.uint64)
        return self._seeds[array]

    def at_positions(self, array: int, box: Box, positions: Bits, bits: Bits) -> int:
        """Digest of ``bits`` (k,) standing at chunk-relative ``positions`` (k,) of the chunk ``box``."""
        members, flat = self._table.arrays[array].grid.locate(box, positions)
        weights = position_weights(flat.astype(np.uint64)) * self.seeds(array)[members]
        return int((bits.astype(np.uint64) * weights).sum(dtype=np.uint64))

    def difference(self, array: int, box: Box, positions: Bits, old: Bits, new: Bits) -> int:
        """By how much the digest changes when ``old`` becomes ``new`` at ``positions``, mod 2**64."""
        change = new.astype(np.uint64) - old.astype(np.uint64)
        return self.at_positions(array, box, positions, change)

    def chunk(self, array: int, box: Box, bits: Bits) -> int:
        """Digest of a whole chunk; ``bits`` has the shape of ``box``."""
        spec = self._table.arrays[array]
        if box.elements == 0:
            return 0
        if not _is_one_range(spec, box):
            flat = np.ascontiguousarray(bits).reshape(-1)
            return self.at_positions(array, box, np.arange(box.elements, dtype=np.uint32), flat)
        first = box.start[1] * math.prod(spec.shape[1:]) if spec.shape else 0
        total = 0
        for offset in range(box.size[0]):
            member = np.ascontiguousarray(bits[offset]).reshape(-1)
            total += digest_range(member, first, int(self.seeds(array)[box.start[0] + offset]))
        return total % MODULUS


def _is_one_range(array: Array, box: Box) -> bool:
    """Whether each member's part of the box is one contiguous range of the tensor."""
    return box.size[2:] == array.shape[1:]
