"""Elias-Fano coding of sorted positions (SPEC section "Positions").

k strictly increasing positions below n are cut at bit L. The low L bits of each are a field section; the
high part h_i = p_i >> L is written in unary: bit (h_i + i) of the high section is set, all others clear. So
the high section has k + ((n - 1) >> L) bits, exactly k of them set, and position i is found by selecting
its i-th set bit: random access, and parallel decoding by popcount and prefix sum.

Source: P. Elias, "Efficient storage and retrieval by content and address of static files", J. ACM 21 (1974);
R. M. Fano, "On the number of bits required to implement an associative memory", MIT (1971).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from deltastore.kernels.reference.fields import pack_fields, section_bytes, unpack_fields
from deltastore.kernels.rows import REASONS

__all__ = ["best_low_bits", "decode_positions", "encode_positions", "high_bits", "positions_bytes"]

Positions = np.ndarray[Any, np.dtype[np.uint32]]
Octets = np.ndarray[Any, np.dtype[np.uint8]]


def high_bits(count: int, universe: int, low_bits: int) -> int:
    """Length in bits of the high section."""
    return count + ((universe - 1) >> low_bits)


def positions_bytes(count: int, universe: int, low_bits: int) -> int:
    """Bytes of the low and the high section together."""
    return section_bytes(count * low_bits) + section_bytes(high_bits(count, universe, low_bits))


def best_low_bits(count: int, universe: int) -> int:
    """The L near log2(universe / count) that makes the two sections smallest: within a word of the best.

    ``universe`` is at most 2**20, the result at most 19.
    """
    if high_bits(count, universe, 0) <= 32:
        return 0
    near = max((universe // count).bit_length() - 1, 0)
    candidates = range(max(near - 2, 0), near + 2)
    return min(candidates, key=lambda low: (positions_bytes(count, universe, low), low))


def encode_positions(positions: Positions, universe: int, low_bits: int) -> bytes:
    """k >= 1 strictly increasing positions (uint32, below ``universe``) -> low section + high section."""
    count = len(positions)
    low = pack_fields(positions, low_bits)
    bits = np.zeros(high_bits(count, universe, low_bits), dtype=np.uint8)
    bits[(positions >> np.uint32(low_bits)).astype(np.int64) + np.arange(count)] = 1
    high = np.packbits(bits, bitorder="little").tobytes()
    return low + high.ljust(section_bytes(len(bits)), b"\0")


def decode_positions(sections: Octets, count: int, universe: int, low_bits: int) -> Positions:
    """The inverse. Raises ``ValueError`` unless there are exactly ``count`` positions, strictly increasing
    and below ``universe``, and every unused bit is clear: nothing is ever written at a position that this
    function did not return.
    """
    cut = section_bytes(count * low_bits)
    length = high_bits(count, universe, low_bits)
    if len(sections) != cut + section_bytes(length):
        raise ValueError(REASONS[3])
    low = unpack_fields(sections[:cut], count, low_bits)
    ones = np.flatnonzero(np.unpackbits(sections[cut:], bitorder="little"))
    if len(ones) != count:
        raise ValueError(REASONS[9])
    if ones[-1] >= length:
        raise ValueError(REASONS[8])
    positions = ((ones - np.arange(count)) << low_bits) | low.astype(np.int64)
    if positions[-1] >= universe or (count > 1 and bool((np.diff(positions) <= 0).any())):
        raise ValueError(REASONS[10])
    return positions.astype(np.uint32)
