"""What kernels know of a model: its arrays, and which boxes of its tensors stand where in memory.

A *piece* is a box of one tensor and an affine map from it to memory: element ``lo + i`` of the tensor stands
at ``address + sum of i_d * strides_d``. A view with strides says exactly that, so a piece holds one. Whole
tensors, tensor-parallel cuts, transposed and fused parameters are all pieces.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import InputError
from deltastore.kernels.grid import ChunkGrid

__all__ = ["GridArray", "KernelTable", "Piece", "Pieces"]

_MOST_AXES: Final = 17  # a member axis and the 16 that a tensor may have
_MOST_ELEMENTS: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class GridArray:
    """One array: its chunk grid over (member, tensor axes), bytes an element, and whether those are a float.

    ``itemsize`` is 1, 2, 4 or 8. ``floating`` says that bits are ordered by sign and magnitude (SPEC section
    "Ordered integers").
    """

    grid: ChunkGrid
    itemsize: int
    floating: bool

    @property
    def bits(self) -> int:
        """Width of an element, W."""
        return self.itemsize * 8

    @property
    def storage(self) -> np.dtype[Any]:
        """The little-endian unsigned type of its bits."""
        return np.dtype(f"<u{self.itemsize}")


class KernelTable:
    """The arrays of a table. ``seeds(array)`` gives the digest seeds of its members, uint64 ``(members,)``.

    Seeds are asked for once, and only by kernels that need them. ``prepared`` is where a backend keeps what
    it made of the table.

    Raises InputError ``bad_argument`` for an array of more than 17 axes, of elements of another width than 1,
    2, 4 or 8 bytes, or with chunks of no element or of more than 2**20.
    """

    def __init__(self, arrays: Sequence[GridArray], seeds: Callable[[int], NDArray[np.uint64]]) -> None:
        self.arrays = tuple(arrays)
        for array in self.arrays:
            _check_array(array)
        self.prepared: dict[str, Any] = {}
        self._ask = seeds
        self._seeds: dict[int, NDArray[np.uint64]] = {}

    def seeds(self, array: int) -> NDArray[np.uint64]:
        """The digest seed of every member of ``array``, uint64 ``(members,)``, each odd."""
        if array not in self._seeds:
            self._seeds[array] = self._ask(array)
        return self._seeds[array]


@dataclass(frozen=True, slots=True)
class Piece:
    """A box of member ``member`` of array ``array``, and its memory.

    ``lo``: the box's first element along each axis of the tensor. ``view``: the bits as unsigned integers of
    the array's width, in the shape of the box, with any strides and at any alignment: a NumPy array, or (for
    the GPU) a torch tensor of the signed integer type of that width, which shares memory with the parameter.
    """

    array: int
    member: int
    lo: tuple[int, ...]
    view: Any

    @property
    def size(self) -> tuple[int, ...]:
        """Elements along each axis."""
        return tuple(self.view.shape)


class Pieces:
    """The pieces that one process holds. They keep their memory alive.

    Raises InputError: ``bad_argument`` for a box outside its tensor or an array or member that the table has
    not, ``wrong_dtype`` for a view that is not of unsigned integers of the array's width (of a torch tensor:
    signed ones).
    """

    def __init__(self, table: KernelTable, pieces: Iterable[Piece]) -> None:
        self.table = table
        self.prepared: dict[str, Any] = {}
        self.pieces = tuple(pieces)
        for piece in self.pieces:
            _check_piece(table, piece)

    @classmethod
    def of_chunks(cls, table: KernelTable, chunks: Iterable[tuple[int, int, Any]]) -> Self:
        """Chunks in buffers: ``(array, chunk, bits)``, with bits in the shape of the chunk's box."""
        pieces = []
        for array, chunk, bits in chunks:
            box = table.arrays[array].grid.box(chunk)
            for offset in range(box.size[0]):
                pieces.append(Piece(array, box.start[0] + offset, box.start[1:], bits[(offset, ...)]))
        return cls(table, pieces)

    def of(self, array: int, member: int) -> Sequence[Piece]:
        """The pieces of one tensor, in the order in which they were given."""
        return self._of.get((array, member), ())

    @cached_property
    def _of(self) -> dict[tuple[int, int], list[Piece]]:
        found: dict[tuple[int, int], list[Piece]] = {}
        for piece in self.pieces:
            found.setdefault((piece.array, piece.member), []).append(piece)
        return found


def _check_array(array: GridArray) -> None:
    extent, chunk = array.grid.extent, array.grid.chunk
    sound = 1 <= len(extent) == len(chunk) <= _MOST_AXES and min(extent) >= 0
    if not sound or array.itemsize not in (1, 2, 4, 8) or not 1 <= math.prod(chunk) <= _MOST_ELEMENTS:
        raise InputError(
            "bad_argument",
            f"no kernel takes an array of extent {list(extent)} in chunks of {list(chunk)} with elements of "
            f"{array.itemsize} bytes: at most {_MOST_AXES} axes, {_MOST_ELEMENTS} elements a chunk, and 1, "
            "2, 4 or 8 bytes",
        )


def _check_piece(table: KernelTable, piece: Piece) -> None:
    where = f"a piece of array {piece.array}, member {piece.member}"
    if not 0 <= piece.array < len(table.arrays):
        raise InputError("bad_argument", f"{where}: the table has {len(table.arrays)} arrays")
    array = table.arrays[piece.array]
    members, *shape = array.grid.extent
    ends = [low + size for low, size in zip(piece.lo, piece.size, strict=False)]
    fits = len(piece.lo) == len(piece.size) == len(shape) and all(low >= 0 for low in piece.lo)
    if not 0 <= piece.member < members or not fits or any(a > b for a, b in zip(ends, shape, strict=True)):
        raise InputError(
            "bad_argument",
            f"{where}: box {list(piece.size)} from {list(piece.lo)} is not inside {members} tensors of shape "
            f"{shape}; give a box of the tensor",
        )
    kinds = (array.storage, f"torch.int{array.bits}")
    if piece.view.dtype != kinds[0] and str(piece.view.dtype) != kinds[1]:
        raise InputError(
            "wrong_dtype",
            f"{where}: elements of type {piece.view.dtype} where {kinds[0]} is wanted, or {kinds[1]}; give a "
            "view of the bits",
        )
