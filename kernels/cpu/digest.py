"""The digest of weights at memory speed (SPEC section "Digest")."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import InputError
from deltastore.kernels.cpu import _native
from deltastore.kernels.cpu.arguments import chunk_numbers
from deltastore.kernels.cpu.instructions import Instructions
from deltastore.kernels.cpu.prepared import prepared_pieces
from deltastore.kernels.pieces import Pieces
from deltastore.kernels.reference.digest import check_range
from deltastore.kernels.rows import ChunkList
from deltastore.kernels.threads import checked_threads

__all__ = ["digest_chunks", "digest_range"]


def digest_range(
    bits: np.ndarray[Any, Any], first: int, seed: int, *, instructions: Instructions = Instructions.BEST
) -> int:
    """The digest of a contiguous range of one tensor, 0..2**64 - 1; what the reference gives, bit for bit.

    ``bits`` is ``(n,)``, C-contiguous, of dtype uint8, uint16, uint32 or uint64 and at any alignment; element
    k has the flat index ``first + k``. One thread, no copy, the GIL is released. Elements of 8 and 16 bits
    take AVX2 where the processor has it; the result does not depend on ``instructions``.

    Raises InputError: ``wrong_dtype`` or ``wrong_memory`` for such ``bits``, ``bad_argument`` for an index
    outside 0..2**63 - 1 or a seed that is not odd or not below 2**64.
    """
    check_range(bits, first, seed)
    return _native.digest_range(bits, first, seed, int(instructions))


def digest_chunks(
    pieces: Pieces, chunks: ChunkList, *, threads: int = 1, instructions: Instructions = Instructions.BEST
) -> NDArray[np.uint64]:
    """The digest of the elements of each chunk that ``pieces`` hold: uint64 ``(n,)``.

    ``chunks`` (n,) of dtype ``CHUNK``. An element that stands in two pieces counts twice. O(elements); the
    GIL is released, and neither ``threads`` nor ``instructions`` change the result.

    Raises InputError ``bad_argument`` for a chunk that the table has not.
    """
    digests = np.zeros(len(chunks), np.uint64)
    done = _native.digest_chunks(
        prepared_pieces(pieces, seeds=True),
        chunk_numbers(chunks),
        digests,
        checked_threads(threads),
        int(instructions),
    )
    if done < len(chunks):
        array, chunk = chunks[done].tolist()
        raise InputError("bad_argument", f"the table has no chunk {chunk} of array {array}, or no seeds")
    return digests
