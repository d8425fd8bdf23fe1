"""Which memory the elements of chunks stand in: windows, built for many chunks at once.

A *window* is the intersection of a chunk with one piece. Neighbouring axes that both memory and the tensor
run through in one stride are one axis; axes along which the chunk has one element are left out. So a chunk
of a contiguous tensor has one window of one axis, and a position needs no division.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from deltastore.errors import InputError
from deltastore.kernels.pieces import KernelTable, Piece, Pieces
from deltastore.kernels.rows import ChunkList

__all__ = ["Windows", "device_of", "windows_of"]

Integers = NDArray[np.int64]

_PREPARED: Final = "triton pieces"
_BY_ARRAY: Final = "triton pieces by array"
_DEVICE: Final = "triton device"
_FAR: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Windows:
    """Those of chunk r are ``windows[first[r] : first[r + 1]]``, by member, then in the order of the pieces.

    ``windows`` int64 (m, 8) and ``axes`` int64 (a, 5), columns in ``tables.py``; the axes of one window stand
    together, innermost first. Strides are bytes. ``first`` int64 (n + 1,).
    """

    first: Integers
    windows: Integers
    axes: Integers


@dataclass(frozen=True, slots=True)
class _Held:
    """The pieces of one array, by member: ``first[m] .. first[m + 1]`` are those of member m."""

    first: Integers
    lo: Integers
    size: Integers
    stride: Integers
    address: Integers


def device_of(pieces: Pieces) -> torch.device:
    """The device that all pieces are on; the CPU where there are none.

    Raises InputError ``wrong_memory`` when a view is not a torch tensor of integers, or devices differ.
    """
    device: torch.device | None = pieces.prepared.get(_DEVICE)
    if device is None:
        devices = {_device(piece) for piece in pieces.pieces}
        if len(devices) > 1:
            raise InputError(
                "wrong_memory", f"pieces on {sorted(map(str, devices))}; give those of one device a call"
            )
        device = devices.pop() if devices else torch.device("cpu")
        pieces.prepared[_DEVICE] = device
    return device


def _device(piece: Piece) -> torch.device:
    view = piece.view
    if not isinstance(view, torch.Tensor) or view.dtype.is_floating_point or view.dtype.is_complex:
        raise InputError(
            "wrong_memory",
            f"a piece of array {piece.array}, member {piece.member} is not a torch tensor of integers; "
            "give bits_of(parameter)",
        )
    return view.device


def windows_of(pieces: Pieces, chunks: ChunkList, *, seeds: bool = True, by_memory: bool = False) -> Windows:
    """The windows of every chunk of ``chunks`` (n,), which are of the table. O(windows), no loop over chunks.

    ``seeds``: fill in the digest seed of each window's member. ``by_memory``: axes by ascending stride in
    memory instead of the chunk's order, for kernels that go through a window in any order.
    """
    device_of(pieces)
    parts = []
    for array in np.unique(chunks["array"]).tolist():
        owners = np.flatnonzero(chunks["array"] == array)
        held = _held(pieces, array)
        numbers = chunks["chunk"][owners].astype(np.int64)
        parts.append(_array_windows(pieces.table, held, array, owners, numbers, seeds, by_memory))
    return _together(parts, len(chunks))


def _held(pieces: Pieces, array: int) -> _Held:
    prepared: dict[int, _Held] = pieces.prepared.setdefault(_PREPARED, {})
    if array not in prepared:
        grid = pieces.table.arrays[array].grid
        mine = sorted(_by_array(pieces).get(array, ()), key=lambda piece: piece.member)
        shape = (len(mine), len(grid.extent) - 1)
        itemsize = pieces.table.arrays[array].itemsize
        members = np.array([piece.member for piece in mine], np.int64)
        prepared[array] = _Held(
            np.searchsorted(members, np.arange(grid.extent[0] + 1)).astype(np.int64),
            np.array([piece.lo for piece in mine], np.int64).reshape(shape),
            np.array([piece.size for piece in mine], np.int64).reshape(shape),
            np.array([piece.view.stride() for piece in mine], np.int64).reshape(shape) * itemsize,
            np.array([piece.view.data_ptr() for piece in mine], np.uint64).view(np.int64),
        )
    return prepared[array]


def _by_array(pieces: Pieces) -> dict[int, list[Piece]]:
    found: dict[int, list[Piece]] | None = pieces.prepared.get(_BY_ARRAY)
    if found is None:
        found = {}
        for piece in pieces.pieces:
            found.setdefault(piece.array, []).append(piece)
        pieces.prepared[_BY_ARRAY] = found
    return found


def _spread(first: Integers, end: Integers) -> tuple[Integers, Integers]:
    """Every integer of the ranges ``first[i] .. end[i] - 1``, with the i that it comes from."""
    sizes = end - first
    owner = np.repeat(np.arange(len(first)), sizes)
    before = np.cumsum(sizes) - sizes
    return owner, np.arange(len(owner)) - np.repeat(before - first, sizes)


def _array_windows(
    table: KernelTable,
    held: _Held,
    array: int,
    owners: Integers,
    numbers: Integers,
    seeds: bool,
    by_memory: bool,
) -> tuple[Integers, Integers, Integers]:
    """(owner, windows, axes) of the chunks ``numbers`` of one array; FIRST_AXIS counts from its own axes."""
    grid = table.arrays[array].grid
    places = [grid.coordinate_along(numbers, axis) for axis in range(len(grid.extent))]
    start = np.stack(places, 1).astype(np.int64) * np.array(grid.chunk, np.int64)
    extent = np.minimum(np.array(grid.chunk, np.int64), np.array(grid.extent, np.int64) - start)

    at, member = _spread(start[:, 0], start[:, 0] + extent[:, 0])
    which, piece = _spread(held.first[member], held.first[member + 1])
    at, member = at[which], member[which]

    low = np.maximum(held.lo[piece], start[at, 1:])
    high = np.minimum(held.lo[piece] + held.size[piece], start[at, 1:] + extent[at, 1:])
    meets = (low < high).all(axis=1)
    at, member, piece, low, high = at[meets], member[meets], piece[meets], low[meets], high[meets]

    shape = grid.extent[1:]
    flat_stride = np.array([math.prod(shape[axis + 1 :]) for axis in range(len(shape))], np.int64)
    box = np.zeros((len(at), len(grid.extent), 5), np.int64)
    box[:, :, 0] = extent[at]
    box[:, 0, 1], box[:, 0, 2] = member - start[at, 0], 1
    box[:, 1:, 1], box[:, 1:, 2] = low - start[at, 1:], high - low
    box[:, 1:, 3], box[:, 1:, 4] = held.stride[piece], flat_stride

    windows = np.zeros((len(at), 8), np.int64)
    windows[:, 0] = held.address[piece] + ((low - held.lo[piece]) * held.stride[piece]).sum(axis=1)
    windows[:, 1] = (low * flat_stride).sum(axis=1)
    if seeds:
        windows[:, 2] = table.seeds(array).astype(np.uint64).view(np.int64)[member]
    inner = np.cumprod(box[:, ::-1, 0], axis=1)[:, ::-1] // box[:, :, 0]
    windows[:, 5] = (box[:, :, 1] * inner).sum(axis=1)
    windows[:, 6] = windows[:, 5] + ((box[:, :, 2] - 1) * inner).sum(axis=1)
    windows[:, 7] = box[:, :, 2].prod(axis=1)

    joined, count = _join(box)
    if by_memory:
        joined = _by_memory(joined, count)
    windows[:, 3], windows[:, 4] = np.cumsum(count) - count, count
    return owners[at], windows, joined[np.arange(joined.shape[1]) < count[:, None]]


def _join(box: Integers) -> tuple[Integers, Integers]:
    """The axes that are left when neighbours are joined, innermost first, and how many they are."""
    joined = np.zeros_like(box)
    count = np.zeros(len(box), np.int64)
    every = np.arange(len(box))
    for axis in range(box.shape[1] - 1, -1, -1):
        outer = box[:, axis]
        place = np.maximum(count - 1, 0)
        inner = joined[every, place]
        run = inner[:, 0]
        steps = (outer[:, 3] == run * inner[:, 3]) & (outer[:, 4] == run * inner[:, 4])
        whole = (inner[:, 1] == 0) & (inner[:, 2] == run)
        some = outer[:, 0] > 1
        joins = some & (count > 0) & whole & ((outer[:, 2] == 1) | steps)
        longer = np.concatenate([outer[:, :3] * run[:, None], inner[:, 3:]], axis=1)
        joined[every[joins], place[joins]] = longer[joins]
        own = some & ~joins
        joined[every[own], count[own]] = outer[own]
        count[own] += 1
    return joined, count


def _by_memory(joined: Integers, count: Integers) -> Integers:
    unused = np.arange(joined.shape[1]) >= count[:, None]
    order = np.argsort(np.where(unused, _FAR, np.abs(joined[:, :, 3])), axis=1, kind="stable")
    return np.take_along_axis(joined, order[:, :, None], axis=1)


def _together(parts: list[tuple[Any, Any, Any]], chunks: int) -> Windows:
    owner = np.concatenate([np.zeros(0, np.int64), *(part[0] for part in parts)])
    before = 0
    for _, windows, axes in parts:
        windows[:, 3] += before
        before += len(axes)
    order = np.argsort(owner, kind="stable")
    empty = (np.zeros((0, 8), np.int64), np.zeros((0, 5), np.int64))
    return Windows(
        np.searchsorted(owner[order], np.arange(chunks + 1)).astype(np.int64),
        np.concatenate([empty[0], *(part[1] for part in parts)])[order],
        np.concatenate([empty[1], *(part[2] for part in parts)]),
    )
