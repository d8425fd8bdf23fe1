"""A window's weights: every chunk of any grid stands where its box says, whether chunks are joined or not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from deltastore.anchors.sharding import ShardGrid
from deltastore.anchors.stored_chunks import StoredChunks
from deltastore.format.table import Array, SlabRule, TensorTable
from deltastore.kernels.cpu import digest_chunks
from deltastore.kernels.pieces import Pieces
from deltastore.kernels.rows import chunk_list
from deltastore.windows import weights
from deltastore.windows.cutting import Window
from deltastore.windows.weights import Weights

GRIDS = [
    ("U8", (), (7,), (2,)),
    ("BF16", (5,), (1,), (1, 2)),
    ("BF16", (64,), (1,), (1, 1)),
    ("F32", (7, 9), (3,), (2, 3, 4)),
    ("I64", (4, 6, 5), (2,), (1, 2, 3, 5)),
    ("U8", (6, 4), (5,), (3, 6, 2)),
    ("BF16", (40, 40), (2,), (1, 33, 40)),
]


def table_of(dtype: str, shape: tuple[int, ...], members: tuple[int], chunk: tuple[int, ...]) -> TensorTable:
    pattern, boxes = ("a.*", (((0, members[0]),),)) if members[0] > 1 else ("a", ((),))
    slab = SlabRule(by="common", of=0, count=0)
    array = Array(pattern=pattern, dtype=dtype, shape=shape, members=boxes, chunk=chunk, slab=slab)
    return TensorTable.seal_new(slabs=0, arrays=(array,))


def stored_of(
    table: TensorTable, chunks: list[int], random: np.random.Generator
) -> tuple[StoredChunks, dict[int, Any]]:
    """Chunks in two parts, out of order, at any byte; and the bits of each."""
    array = table.arrays[0]
    whole = math.prod(array.chunk) * array.element.itemsize
    held = random.integers(0, 2, len(chunks))
    offsets, found = np.zeros(len(chunks), np.int64), {}
    parts = [bytearray(b"?"), bytearray(b"???")]
    for at in random.permutation(len(chunks)).tolist():
        part = parts[held[at]]
        offsets[at] = len(part)
        data = random.bytes(whole)
        part += data + bytes(random.integers(0, 3))
        size = array.grid.box(chunks[at]).size
        bits = np.frombuffer(data, array.element.storage).reshape(array.chunk)
        found[chunks[at]] = bits[tuple(slice(one) for one in size)]
    grid = ShardGrid(array.grid, (1,) * len(array.chunk))
    numbers = np.array(chunks, np.int64)
    return StoredChunks(0, array, grid, numbers, [bytes(one) for one in parts], held, offsets), found


@pytest.mark.parametrize(("dtype", "shape", "members", "chunk"), GRIDS)
@pytest.mark.parametrize("limits", [(1 << 16, 1024, 3), (1 << 16, 0, 1), (0, 1024, 1 << 18)])
def test_every_chunk_stands_in_its_box(
    dtype: str,
    shape: tuple[int, ...],
    members: tuple[int],
    chunk: tuple[int, ...],
    limits: tuple[int, int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in zip(("_JOINED_BYTES", "_LONE_ELEMENTS", "_AT_ONCE"), limits, strict=True):
        monkeypatch.setattr(weights, name, value)
    table, random = table_of(dtype, shape, members, chunk), np.random.default_rng(7)
    every = list(range(len(table.arrays[0].grid)))
    for chosen in (every, every[1:], every[1:-1], every[::2], every[: len(every) // 2 + 1]):
        if not chosen:
            continue
        window = Window(chunk_list(np.zeros(len(chosen), int), np.array(chosen)), 0)
        held = Weights(table, window)
        stored, wanted = stored_of(table, chosen, random)
        held.fill(stored)
        assert [number for _, number in held.chunks] == chosen
        for number, bits in wanted.items():
            assert np.array_equal(held.chunks[0, number], bits)
        plain = Pieces.of_chunks(table.kernels, ((0, number, bits) for number, bits in wanted.items()))
        assert np.array_equal(digest_chunks(held.pieces, window.chunks), digest_chunks(plain, window.chunks))
        copy = Weights(table, window)
        copy.take(held)
        assert all(np.array_equal(bits, held.chunks[place]) for place, bits in copy.chunks.items())


def test_small_chunks_of_a_tensor_are_one_piece() -> None:
    table = table_of("BF16", (64, 64), (1,), (1, 2, 4))
    every = np.arange(len(table.arrays[0].grid))
    window = Window(chunk_list(np.zeros(len(every), int), every), 0)
    assert len(Weights(table, window).pieces.pieces) == 1
    few = Window(chunk_list(np.zeros(40, int), every[7:47]), 0)
    assert len(Weights(table, few).pieces.pieces) == 3
