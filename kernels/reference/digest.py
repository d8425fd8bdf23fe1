"""The digest of weights (SPEC section "Digest"). All arithmetic is modulo 2**64.

    mix(x)  = SplitMix64's output for the state x
    T[j]    = mix(0x64656C746173746F + j) | 1                          j in 0..2047
    w_i     = T[i mod 2048] * (mix(i div 2048) | 1) * seed             i: flat row-major index in the tensor
    digest  = sum over i of bits_i * w_i                               bits_i: the element at its own width

Every weight is odd, so it has an inverse and one wrong element always changes the sum. Parts of a tensor add
up, and a change adds ``sum of (new - old) * w``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import InputError
from deltastore.kernels.pieces import Pieces
from deltastore.kernels.reference.held import HeldChunk
from deltastore.kernels.rows import ChunkList

__all__ = [
    "BLOCK",
    "LAST_POSITION",
    "check_bits",
    "check_range",
    "check_seed",
    "digest_at",
    "digest_chunks",
    "digest_range",
    "mix",
    "position_weights",
    "weights",
]

Bits = np.ndarray[Any, Any]
"""Elements as unsigned integers of their own width: uint8, uint16, uint32 or uint64."""

BLOCK: Final = 2048
"""Elements that share one block factor."""

LAST_POSITION: Final = 2**63 - 1
"""The highest flat index that an element may have."""

_MODULUS: Final = 1 << 64
_WIDTHS: Final = tuple(np.dtype(f"u{size}") for size in (1, 2, 4, 8))
_PIECE: Final = 1 << 14  # elements at a time: the temporaries of one piece stay below a mebibyte


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser of every value: uint64 of one axis or more, to a new array of that shape."""
    z = values + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


_TABLE: Final = mix(np.uint64(0x64656C746173746F) + np.arange(BLOCK, dtype=np.uint64)) | np.uint64(1)
_TABLE.flags.writeable = False


def position_weights(positions: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """``T[i mod 2048] * (mix(i div 2048) | 1)`` of every flat index: the weight before the tensor's seed.

    ``positions`` is uint64 of one axis or more; the result is uint64 of the same shape.
    """
    blocks = mix(positions // np.uint64(BLOCK)) | np.uint64(1)
    within: NDArray[np.uint64] = _TABLE[positions % np.uint64(BLOCK)]
    return within * blocks


def weights(first: int, count: int, seed: int) -> NDArray[np.uint64]:
    """The weights of the flat indices ``first .. first + count - 1``: uint64 ``(count,)``.

    Raises InputError ``bad_argument`` for a negative count, an index outside 0..2**63 - 1 or an even seed.
    """
    check_seed(seed)
    _check_indices(first, count)
    return _weights(first, count, seed)


def digest_range(bits: Bits, first: int, seed: int) -> int:
    """The digest of a contiguous range of one tensor, 0..2**64 - 1.

    ``bits`` is ``(n,)``, C-contiguous, of dtype uint8, uint16, uint32 or uint64 and at any alignment; element
    k has the flat index ``first + k``. O(n); memory: below a mebibyte, whatever n is.

    Raises InputError: ``wrong_dtype`` or ``wrong_memory`` for such ``bits``, ``bad_argument`` for an index
    outside 0..2**63 - 1 or a seed that is not odd or not below 2**64.
    """
    check_range(bits, first, seed)
    total = 0
    for start in range(0, bits.size, _PIECE):
        piece = bits[start : start + _PIECE]
        total += _dot(piece, _weights(first + start, piece.size, seed))
    return total % _MODULUS


def digest_at(bits: Bits, positions: NDArray[np.uint64], seed: int) -> int:
    """The digest of elements that stand apart, 0..2**64 - 1: that of a range which is zero elsewhere.

    ``bits`` is as in ``digest_range``; ``positions`` is uint64 ``(n,)`` of flat indices in any order, and one
    that comes twice counts twice. Memory: below a mebibyte, whatever n is.

    Raises InputError: ``wrong_dtype`` or ``wrong_memory`` for such arrays, ``bad_argument`` for arrays of
    unequal length, an index above 2**63 - 1 or a seed that is not odd or not below 2**64.
    """
    check_bits(bits)
    check_seed(seed)
    _check_positions(positions, bits.size)
    total = 0
    for start in range(0, bits.size, _PIECE):
        piece = slice(start, start + _PIECE)
        total += _dot(bits[piece], position_weights(positions[piece]) * np.uint64(seed))
    return total % _MODULUS


def digest_chunks(pieces: Pieces, chunks: ChunkList) -> NDArray[np.uint64]:
    """The digest of the elements of each chunk that ``pieces`` hold: uint64 ``(n,)``.

    ``chunks`` (n,) of dtype ``CHUNK``, all of them the table's. An element that stands in two pieces counts
    twice. The C++ kernel raises InputError ``bad_argument`` for a chunk that the table has not. O(elements).
    """
    digests = np.zeros(len(chunks), np.uint64)
    for number, (array, chunk) in enumerate(chunks.tolist()):
        grid, seeds = pieces.table.arrays[array].grid, pieces.table.seeds(array)
        total = 0
        for positions, view in HeldChunk(pieces, array, chunk).parts:
            members, flat = grid.locate(grid.box(chunk), positions.ravel())
            factors = position_weights(flat.astype(np.uint64)) * seeds[members]
            total += _dot(view.ravel(), factors)
        digests[number] = total % _MODULUS
    return digests


def check_range(bits: Bits, first: int, seed: int) -> None:
    """Refuses what no backend's ``digest_range`` takes; raises what ``digest_range`` says it raises."""
    check_bits(bits)
    check_seed(seed)
    _check_indices(first, bits.size)


def check_bits(bits: Bits) -> None:
    """Refuses anything but ``(n,)``, C-contiguous, unsigned and in native byte order."""
    if bits.dtype not in _WIDTHS:
        raise InputError(
            "wrong_dtype", f"a digest takes unsigned integers, not {bits.dtype}; give a view of the bits"
        )
    if bits.ndim != 1 or not bits.flags.c_contiguous:
        raise InputError(
            "wrong_memory", f"a digest takes one contiguous axis, not {bits.shape}; flatten a copy first"
        )


def check_seed(seed: int) -> None:
    """Refuses a seed that is even, negative or above 64 bits."""
    if seed % 2 == 0 or not 0 < seed < _MODULUS:
        raise InputError("bad_argument", f"a seed is odd and below 2**64, not {seed}; use the tensor's")


def _check_indices(first: int, count: int) -> None:
    if first < 0 or count < 0 or first + count > LAST_POSITION + 1:
        raise InputError(
            "bad_argument", f"{count} elements from flat index {first} leave 0..2**63 - 1; check the offset"
        )


def _check_positions(positions: NDArray[np.uint64], count: int) -> None:
    if positions.dtype != np.uint64:
        raise InputError("wrong_dtype", f"positions are uint64, not {positions.dtype}; convert them first")
    if positions.shape != (count,):
        raise InputError(
            "bad_argument", f"positions of shape {positions.shape} for {count} elements; give one for each"
        )
    if count and int(positions.max()) > LAST_POSITION:
        raise InputError("bad_argument", f"flat index {positions.max()} is above 2**63 - 1; check its offset")


def _weights(first: int, count: int, seed: int) -> NDArray[np.uint64]:
    positions = np.uint64(first) + np.arange(count, dtype=np.uint64)
    return position_weights(positions) * np.uint64(seed)


def _dot(bits: Bits, factors: NDArray[np.uint64]) -> int:
    return int((bits.astype(np.uint64) * factors).sum(dtype=np.uint64))
