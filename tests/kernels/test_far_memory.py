"""Elements that stand beyond 2**31 elements of their tensor, of their chunk list or of their memory."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from deltastore.kernels.grid import ChunkGrid
from deltastore.kernels.pieces import GridArray, KernelTable, Piece, Pieces
from deltastore.kernels.rows import ChunkList, chunk_list

from . import encoded, staging
from .backends import COMPILED, REFERENCE
from .models import hostile_bits, moved, table_of

Bits = np.ndarray[Any, Any]
GIBI = 2**30
NORESERVE = 0x4000
"""MAP_NORESERVE of Linux, which Python 3.11 has no name for."""


def sparse_memory(size: int) -> NDArray[np.uint8]:
    """``size`` bytes of address space, of which only pages that are written to take memory."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE
    return np.frombuffer(mmap.mmap(-1, size, flags=flags), np.uint8)


@dataclass(frozen=True)
class Window:
    """Says that memory is the end of a far greater one: ``address`` may lie outside any object."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    kind: str

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "data": (self.address, False),
            "shape": self.shape,
            "strides": self.strides,
            "typestr": self.kind,
        }


def check_all_kernels(table: KernelTable, old: Pieces, new: Pieces, chunks: ChunkList) -> None:
    """Encode, digest, stage, write and apply ``chunks`` from ``old``, which is restored, to ``new``."""
    expected = REFERENCE.encode_changed(new, old, chunks)
    assert 0 < len(expected.rows) <= len(chunks)
    digests = REFERENCE.digest_chunks(new, chunks).tolist()
    staged, differences = REFERENCE.resolve(old, expected.rows, expected.body, None)
    assert differences.tolist() == expected.rows["difference"].tolist()
    before = [(piece.view, bits_of(table, piece, chunks)) for piece in old.pieces]
    for kernels in COMPILED:
        assert encoded.same(kernels.encode_changed(new, old, chunks), expected), kernels.name
        assert kernels.digest_chunks(new, chunks).tolist() == digests, kernels.name
        kernels.check(table, expected.rows, expected.body)
        again, sums = kernels.resolve(old, expected.rows, expected.body, None)
        assert staging.same(again, staged), kernels.name
        assert sums.tolist() == differences.tolist(), kernels.name
        merged, overlaps = kernels.merge(table, staged, again)
        assert overlaps == len(staged.positions)
        writes: list[Callable[[], None]] = [
            partial(kernels.apply, old, expected.rows, expected.body),
            partial(kernels.scatter, old, merged),
        ]
        for write in writes:
            assert kernels.mismatches(old, staged) == len(staged.positions) * len(old.pieces)
            write()
            assert kernels.mismatches(old, staged) == 0
            assert not len(REFERENCE.encode_changed(new, old, chunks).rows)
            for view, parts in before:
                for where, bits in parts:
                    view[where] = bits


def bits_of(table: KernelTable, piece: Piece, chunks: ChunkList) -> list[tuple[tuple[slice, ...], Bits]]:
    """What stands in the piece where it meets each chunk."""
    parts = []
    for array, chunk in chunks.tolist():
        box = table.arrays[array].grid.box(chunk)
        pairs = list(zip(box.start[1:], box.size[1:], piece.lo, piece.size, strict=True))
        inside = tuple(
            slice(max(start - low, 0), max(min(start + extent - low, size), 0))
            for start, extent, low, size in pairs
        )
        if box.start[0] <= piece.member < box.start[0] + box.size[0]:
            parts.append((inside, piece.view[inside].copy()))
    return parts


@pytest.mark.parametrize("itemsize", [1, 2, 8])
@pytest.mark.parametrize("sign", [1, -1])
def test_rows_that_are_gigabytes_apart(itemsize: int, sign: int) -> None:
    """One piece over 11 GiB of address space: rows 5 GiB apart, forwards and backwards."""
    rng = np.random.default_rng(itemsize)
    array = GridArray(ChunkGrid((1, 3, 1000), (1, 2, 600)), itemsize, floating=True)
    table = table_of(array)
    sides = []
    bits = hostile_bits(array, 3000, rng)
    changed = np.where(rng.random(3000) < 0.1, moved(array, bits, "edges", rng), bits).astype(bits.dtype)
    for values in (bits, changed):
        memory = sparse_memory(11 * GIBI)
        start = 64 if sign > 0 else 10 * GIBI + 64
        view = np.ndarray((3, 1000), array.storage, memory, start, (sign * 5 * GIBI, itemsize))
        view[...] = values.reshape(3, 1000)
        sides.append(Pieces(table, [Piece(0, 0, (0, 0), view)]))
    chunks = chunk_list([0] * 4, range(4))
    check_all_kernels(table, sides[0], sides[1], chunks)


@pytest.mark.parametrize("extent", [(2, 3, 2**31), (1, 5, 2**33), (1, 2**20 - 1, 2**32), (1, 2**43)])
def test_elements_at_the_end_of_a_vast_tensor(extent: tuple[int, ...]) -> None:
    """Flat indexes and chunk numbers far above 2**31, held by a small piece at the tensor's end."""
    rng = np.random.default_rng(len(extent))
    last = min(extent[-1], 2**20)
    chunk = (*(1 for _ in extent[:-1]), last)
    array = GridArray(ChunkGrid(extent, chunk), 2, floating=True)
    assert len(array.grid) < 2**32
    table = table_of(array)
    held = 5000
    size = (*(1 for _ in extent[1:-1]), held)
    low = (*(axis - 1 for axis in extent[1:-1]), extent[-1] - held)
    bits = hostile_bits(array, held, rng)
    changed = np.where(rng.random(held) < 0.05, moved(array, bits, "edges", rng), bits).astype(bits.dtype)
    sides = [
        Pieces(table, [Piece(0, extent[0] - 1, low, values.reshape(size))])
        for values in (bits.copy(), changed)
    ]
    check_all_kernels(table, sides[0], sides[1], chunk_list([0], [len(array.grid) - 1]))


@pytest.mark.parametrize("step", [1, -1, 3])
def test_memory_of_which_only_the_end_is_there(step: int) -> None:
    """A piece of 2**32 elements whose first address is no object's; chunks at its end are real."""
    rng = np.random.default_rng(1)
    array = GridArray(ChunkGrid((1, 4096, 2**20), (1, 1, 2**14)), 2, floating=True)
    table = table_of(array)
    real = 2**15
    sides, windows = [], []
    bits = hostile_bits(array, real, rng)
    changed = np.where(rng.random(real) < 0.01, moved(array, bits, "edges", rng), bits).astype(bits.dtype)
    for values in (bits, changed):
        window = np.zeros(real * abs(step), np.uint16)[::step]
        window[...] = values
        windows.append(window)  # which keeps it
        strides = (2**20 * 2 * step, 2 * step)
        address = window.__array_interface__["data"][0] - (2**32 - real) * 2 * step
        view = np.asarray(Window(address, (4096, 2**20), strides, "<u2"))
        sides.append(Pieces(table, [Piece(0, 0, (0, 0), view)]))
    count = len(array.grid)
    check_all_kernels(table, sides[0], sides[1], chunk_list([0, 0], [count - 1, count - 2]))


def test_staged_bits_beyond_four_gibibytes() -> None:
    """Offsets of staged bits are 64 bits wide: those of the second chunk stand 5 GiB behind the first's."""
    array = GridArray(ChunkGrid((2, 6), (1, 6)), 8, floating=False)
    table = table_of(array)
    near = staging.staged(table, {(0, 0): {1: 7, 5: 8}, (0, 1): {0: 9}})
    bits = sparse_memory(5 * GIBI + 64)
    bits[:16] = near.bits[:16]
    bits[5 * GIBI : 5 * GIBI + 8] = near.bits[16:24]
    far = type(near)(near.chunks, near.starts, near.positions, np.array([0, 5 * GIBI, 5 * GIBI + 8]), bits)
    for kernels in (REFERENCE, *COMPILED):
        memory = [np.zeros(6, np.uint64), np.zeros(6, np.uint64)]
        pieces = Pieces(table, [Piece(0, member, (0,), view) for member, view in enumerate(memory)])
        assert kernels.mismatches(pieces, far) == 3
        kernels.scatter(pieces, far)
        assert [view.tolist() for view in memory] == [[0, 7, 0, 0, 0, 8], [9, 0, 0, 0, 0, 0]], kernels.name
        assert staging.same(kernels.merge(table, far, far)[0], near), kernels.name
