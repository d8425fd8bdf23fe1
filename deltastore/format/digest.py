"""Digests of weights (SPEC section "Digest").

    digest = sum over tensors and elements of bits_i * w_i                              mod 2**64
    w_i    = T[i mod 2048] * (mix(i div 2048) | 1) * seed(tensor)

It is additive over chunks, tensors and writers; a patch changes it by sum((new - old) * w). Every weight is
odd, so a single wrong element always shows. It guards against faults, not against attackers.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from deltastore.format.table import TensorTable
from deltastore.kernels.cpu import digest_chunks
from deltastore.kernels.grid import Box
from deltastore.kernels.pieces import Pieces
from deltastore.kernels.reference.encode import difference
from deltastore.kernels.rows import chunk_list

__all__ = ["MODULUS", "Digester", "digest_text"]

Bits = np.ndarray[Any, Any]

MODULUS: Final = 1 << 64


def digest_text(digest: int) -> str:
    """A digest as records write it: 16 lower-case hexadecimal digits."""
    return f"{digest % MODULUS:016x}"


class Digester:
    """Digests of parts of one table's weights."""

    def __init__(self, table: TensorTable) -> None:
        self._table = table

    def chunk(self, array: int, box: Box, bits: Bits) -> int:
        """Digest of a whole chunk; ``bits`` has the shape of ``box``."""
        number = self._table.arrays[array].grid.number(box)
        pieces = Pieces.of_chunks(self._table.kernels, [(array, number, bits)])
        return int(digest_chunks(pieces, chunk_list([array], [number]))[0])

    def at_positions(self, array: int, box: Box, positions: Bits, bits: Bits) -> int:
        """Digest of ``bits`` (k,) standing at chunk-relative ``positions`` (k,) of the chunk ``box``."""
        return self.difference(array, box, positions, np.zeros_like(bits), bits)

    def difference(self, array: int, box: Box, positions: Bits, old: Bits, new: Bits) -> int:
        """By how much the digest changes when ``old`` becomes ``new`` at ``positions``, mod 2**64."""
        number = self._table.arrays[array].grid.number(box)
        return difference(self._table.kernels, array, number, positions, old, new)
