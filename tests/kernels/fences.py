"""Memory that ends at a page which nobody may touch: one byte beyond it kills the process."""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import replace
from typing import Any

import numpy as np

from deltastore.kernels.pieces import Piece, Pieces
from deltastore.kernels.rows import StagedBits

from .memory import Memory

Bits = np.ndarray[Any, Any]

_PROT_NONE = 0
_LIBC = ctypes.CDLL(None, use_errno=True)


def fenced(bits: Bits, *, behind: bool) -> Bits:
    """A copy of a contiguous array, right in front of such a page, or right behind one."""
    page = mmap.PAGESIZE
    inner = -(-bits.nbytes // page) * page
    region = mmap.mmap(-1, inner + 2 * page)
    octets = np.frombuffer(region, np.uint8)
    for at in (0, page + inner):
        if _LIBC.mprotect(ctypes.c_void_p(octets.ctypes.data + at), ctypes.c_size_t(page), _PROT_NONE):
            raise OSError(ctypes.get_errno(), "mprotect")
    start = page if behind else page + inner - bits.nbytes
    copy: Bits = octets[start : start + bits.nbytes].view(bits.dtype).reshape(bits.shape)
    copy[...] = bits
    return copy


def fenced_pieces(memory: Memory, *, behind: bool) -> Pieces:
    """The same pieces, each by itself in memory of exactly its reach."""
    pieces = []
    for place in memory.places:
        offsets = place.offsets()
        storage = memory.table.arrays[place.array].storage
        low = int(offsets.min(initial=place.offset)) if offsets.size else place.offset
        high = int(offsets.max(initial=low)) + storage.itemsize if offsets.size else low
        octets = fenced(memory.arena[low:high], behind=behind)
        view = np.ndarray(place.size, storage, octets, place.offset - low, place.strides)
        pieces.append(Piece(place.array, place.member, place.lo, view))
    return Pieces(memory.table, pieces)


def fenced_staged(source: StagedBits, *, behind: bool) -> StagedBits:
    """The same bits, every list of them by itself."""
    parts = ("chunks", "starts", "positions", "offsets", "bits")
    return replace(source, **{part: fenced(getattr(source, part), behind=behind) for part in parts})
