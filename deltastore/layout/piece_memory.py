"""Reading and writing boxes of tensors through the pieces that hold them, in whatever memory those are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltastore.kernels.grid import Box
from deltastore.kernels.pieces import Piece, Pieces
from deltastore.layout.device import host_copy, is_on_device
from deltastore.layout.parts import intersection, slices_at

__all__ = ["bits_at", "copied_chunk", "cut_pieces", "write_box"]

Bits = np.ndarray[Any, Any]


def write_box(pieces: Pieces, array: int, box: Box, bits: Bits) -> None:
    """Write ``bits``, in the shape of ``box``, wherever ``pieces`` hold elements of it."""
    for offset, inside, piece, taken in _meeting(pieces, array, box):
        source, target = _part(bits, offset, inside), piece.view[(*taken, ...)]
        if is_on_device(target):
            signed = np.array(source, order="C").view(f"<i{bits.dtype.itemsize}")
            target.copy_(target.new_tensor(signed))
        else:
            target[...] = source


def cut_pieces(pieces: Pieces, array: int, box: Box, bits: Bits) -> Iterator[Piece]:
    """What ``pieces`` hold of a box, as pieces of ``bits``, which have the shape of the box."""
    for offset, inside, piece, taken in _meeting(pieces, array, box):
        lo = tuple(low + part.start for low, part in zip(piece.lo, taken, strict=True))
        yield Piece(array, piece.member, lo, _part(bits, offset, inside))


def copied_chunk(pieces: Pieces, array: int, chunk: int) -> Pieces:
    """What ``pieces`` hold of a chunk, in memory of the CPU."""
    box = pieces.table.arrays[array].grid.box(chunk)
    copies = []
    for _, _, piece, taken in _meeting(pieces, array, box):
        lo = tuple(low + part.start for low, part in zip(piece.lo, taken, strict=True))
        copies.append(Piece(array, piece.member, lo, _on_host(piece.view[(*taken, ...)])))
    return Pieces(pieces.table, copies)


def bits_at(pieces: Pieces, array: int, member: int, flats: NDArray[np.int64]) -> Bits:
    """The bits at flat indexes of one tensor, all of which are held: ``(n,)``."""
    form = pieces.table.arrays[array]
    shape = form.grid.extent[1:]
    found = np.zeros(len(flats), form.storage)
    index = np.unravel_index(flats, shape or (1,))
    for piece in pieces.of(array, member):
        view = piece.view if shape else piece.view.reshape(1)
        local = [at - low for at, low in zip(index, piece.lo or (0,), strict=True)]
        mine = np.ones(len(flats), np.bool_)
        for at, length in zip(local, view.shape, strict=True):
            mine &= (at >= 0) & (at < length)
        found[mine] = _on_host(_picked(view, [at[mine] for at in local]))
    return found


def _picked(view: Any, index: list[NDArray[np.int64]]) -> Any:
    if not is_on_device(view):
        return view[tuple(index)]
    numbers = view.new_empty(0).long()
    return view[tuple(numbers.new_tensor(at) for at in index)]


def _part(bits: Bits, offset: int, inside: tuple[slice, ...]) -> Bits:
    place: Any = (offset, *inside, ...)
    part: Bits = bits[place]
    return part


def _on_host(view: Any) -> Bits:
    return host_copy(view) if is_on_device(view) else view


def _meeting(
    pieces: Pieces, array: int, box: Box
) -> Iterator[tuple[int, tuple[slice, ...], Piece, tuple[slice, ...]]]:
    """(member - first one, part of the box, piece, part of the piece) of every intersection."""
    for offset in range(box.size[0]):
        for piece in pieces.of(array, box.start[0] + offset):
            shared = intersection(box.start[1:], box.size[1:], piece.lo, piece.size)
            if shared is not None:
                start, size = shared
                yield offset, slices_at(start, size, box.start[1:]), piece, slices_at(start, size, piece.lo)
