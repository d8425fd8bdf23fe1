"""Small models with everything that is awkward about memory and bits, on torch tensors and NumPy views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from deltastore.kernels.grid import ChunkGrid
from deltastore.kernels.pieces import GridArray, KernelTable, Piece, Pieces
from deltastore.kernels.rows import ChunkList, chunk_list

GUARD = 64


@dataclass
class Shape:
    """An array: extent over (member, tensor axes), chunk, bytes an element, float or not."""

    extent: tuple[int, ...]
    chunk: tuple[int, ...]
    itemsize: int
    floating: bool = True

    @property
    def grid_array(self) -> GridArray:
        return GridArray(ChunkGrid(self.extent, self.chunk), self.itemsize, self.floating)


SHAPES = (
    Shape((2, 70, 90), (1, 40, 90), 2),
    Shape((3, 33, 65), (1, 20, 40), 2),
    Shape((4, 37), (3, 37), 1),
    Shape((1, 5, 6, 7), (1, 2, 6, 4), 4, floating=False),
    Shape((2, 40, 33), (2, 16, 33), 8),
    Shape((3,), (1,), 2),
    Shape((2, 300), (1, 300), 1, floating=False),
    Shape((1, 61, 9), (1, 61, 9), 8, floating=False),
    Shape((2, 0, 3), (1, 1, 3), 2),
    Shape((1, 64, 128), (1, 64, 128), 2),
)


def table_of(shapes: tuple[Shape, ...] = SHAPES) -> KernelTable:
    def seeds(array: int) -> NDArray[np.uint64]:
        generator = np.random.default_rng(array)
        return generator.integers(0, 2**64, shapes[array].extent[0], np.uint64) | np.uint64(1)

    return KernelTable([shape.grid_array for shape in shapes], seeds)


def all_chunks(table: KernelTable) -> ChunkList:
    numbers = [(array, chunk) for array, form in enumerate(table.arrays) for chunk in range(len(form.grid))]
    return chunk_list(*np.array(numbers).T)


def hostile_bits(generator: np.random.Generator, count: int, itemsize: int) -> NDArray[Any]:
    """Mostly ordinary values, with zeros of both signs, infinities, NaN payloads and denormals."""
    storage = np.dtype(f"<u{itemsize}")
    bits = generator.integers(0, 2 ** (8 * itemsize), count, storage)
    top = 1 << (8 * itemsize - 1)
    odd = np.array([0, top, top - 1, top + 1, 1, 2 * top - 1, top >> 1, (top >> 1) | top], storage)
    strange = generator.random(count) < 0.3
    bits[strange] = odd[generator.integers(0, len(odd), int(strange.sum()))]
    return bits


class Memory:
    """One arena that every piece's memory is cut from, with guard bytes all around."""

    def __init__(self, size: int = 1 << 20) -> None:
        self.octets = torch.full((size,), 0x5A, dtype=torch.uint8)
        self._at = GUARD

    def take(self, shape: tuple[int, ...], itemsize: int) -> torch.Tensor:
        count = int(np.prod(shape, dtype=np.int64)) * itemsize
        part = self.octets[self._at : self._at + count]
        self._at += -(-count // GUARD) * GUARD + GUARD
        assert self._at < len(self.octets)
        return part.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[itemsize]).reshape(
            shape
        )


@dataclass
class Model:
    """The same memory as pieces of torch tensors and of NumPy arrays, and a way to look at all of it."""

    memory: Memory
    on_device: Pieces
    on_host: Pieces

    def content(self) -> bytes:
        return self.memory.octets.numpy().tobytes()

    def restore(self, content: bytes) -> None:
        self.memory.octets.numpy()[:] = np.frombuffer(content, np.uint8)


def _views(
    memory: Memory, shape: tuple[int, ...], itemsize: int, form: str
) -> list[tuple[tuple[int, ...], torch.Tensor]]:
    """(lo, view) of the pieces that hold one tensor in the way ``form`` says."""
    rank = len(shape)
    zeros = (0,) * rank
    if form == "transposed" and rank >= 2:
        return [(zeros, memory.take(shape[::-1], itemsize).permute(*range(rank)[::-1]))]
    if form == "strided" and rank >= 1:
        wide = memory.take((*shape[:-1], shape[-1] * 2 + 1), itemsize)
        return [(zeros, wide[..., 1 : 1 + 2 * shape[-1] : 2])]
    if form == "columns" and rank >= 2 and shape[-1] > 2:
        cut = shape[-1] // 3
        left = memory.take((*shape[:-1], cut), itemsize)
        right = memory.take((shape[-1] - cut, *shape[:-1]), itemsize).movedim(0, -1)
        return [(zeros, left), ((*zeros[:-1], cut), right)]
    if form == "clipped" and rank >= 1 and shape[0] > 4:
        low, high = 1, shape[0] - 2
        return [((low, *zeros[1:]), memory.take((high - low, *shape[1:]), itemsize))]
    if form == "twice" and rank >= 1 and shape[0] > 3:
        half = shape[0] // 2 + 1
        upper = memory.take((shape[0] - half + 2, *shape[1:]), itemsize)
        return [(zeros, memory.take((half, *shape[1:]), itemsize)), ((half - 2, *zeros[1:]), upper)]
    return [(zeros, memory.take(shape, itemsize))]


FORMS = ("plain", "transposed", "strided", "columns", "clipped", "missing")


def model_of(
    table: KernelTable, seed: int, forms: tuple[str, ...], weights: dict[tuple[int, int], NDArray[Any]]
) -> Model:
    """Every tensor of ``weights`` in one of the ``forms``, drawn; ``missing`` ones have no piece."""
    generator = np.random.default_rng(seed)
    memory = Memory()
    device, host = [], []
    for (array, member), bits in weights.items():
        form = forms[int(generator.integers(len(forms)))]
        if form == "missing":
            continue
        for lo, view in _views(memory, bits.shape, table.arrays[array].itemsize, form):
            box = tuple(slice(low, low + size) for low, size in zip(lo, view.shape, strict=True))
            theirs = view.numpy().view(table.arrays[array].storage)
            theirs[...] = bits[box]
            device.append(Piece(array, member, lo, view))
            host.append(Piece(array, member, lo, theirs))
    return Model(memory, Pieces(table, device), Pieces(table, host))


def random_weights(table: KernelTable, seed: int) -> dict[tuple[int, int], NDArray[Any]]:
    generator = np.random.default_rng(seed)
    weights = {}
    for array, form in enumerate(table.arrays):
        members, *shape = form.grid.extent
        for member in range(members):
            count = int(np.prod(shape, dtype=np.int64))
            weights[array, member] = hostile_bits(generator, count, form.itemsize).reshape(shape)
    return weights


def changed_weights(
    table: KernelTable, weights: dict[tuple[int, int], NDArray[Any]], seed: int, density: float
) -> dict[tuple[int, int], NDArray[Any]]:
    """Each element changed with this probability, by steps of all widths, small ones first of all."""
    from deltastore.kernels.reference.ordered import ordered

    generator = np.random.default_rng(seed)
    after = {}
    for (array, member), tensor in weights.items():
        form, bits = table.arrays[array], tensor.reshape(-1)
        at = ordered(bits, floating=form.floating)
        reach = generator.integers(1, form.bits + 1, bits.shape)
        narrow = generator.random(bits.shape) < 0.7
        reach = np.where(narrow, np.minimum(reach, 2), reach)
        size = (
            generator.integers(1, 2**63, bits.shape, np.uint64) >> (64 - reach).astype(np.uint64)
        ) + np.uint64(1)
        step = np.where(generator.random(bits.shape) < 0.5, size, np.uint64(0) - size).astype(form.storage)
        moved = ordered((at + step).astype(form.storage), floating=form.floating)
        now = np.where(generator.random(bits.shape) < density, moved, bits)
        after[array, member] = now.reshape(tensor.shape)
    return after
