"""``StagedBits`` made element by element, and what they say."""

from __future__ import annotations

from typing import Any

import numpy as np

from deltastore.kernels.pieces import KernelTable
from deltastore.kernels.rows import StagedBits, chunk_list

from . import plain
from .models import Tensors, every_chunk

Bits = np.ndarray[Any, Any]
Entries = dict[tuple[int, int], dict[int, int]]
"""Bits by position, by (array, chunk)."""


def staged_of(
    table: KernelTable,
    tensors: Tensors,
    share: float,
    rng: np.random.Generator | None,
    changed_from: Tensors | None = None,
    like: StagedBits | None = None,
) -> StagedBits:
    """The bits of ``tensors`` at some elements of some chunks.

    Those are where ``changed_from`` differs and a random ``share`` of all others; or those of ``like``.
    """
    if like is not None:
        return staged(table, {place: bits_at(table, tensors, *place, at) for place, at in of(like).items()})
    entries: Entries = {}
    for array, chunk in every_chunk(table).tolist() if rng is not None else []:
        assert rng is not None
        elements = range(table.arrays[array].grid.box(chunk).elements)
        chosen = (rng.random(len(elements)) < share).tolist()
        if changed_from is not None:
            new = bits_at(table, tensors, array, chunk, elements)
            old = bits_at(table, changed_from, array, chunk, elements)
            chosen = [chosen[at] or new[at] != old[at] for at in elements]
        if changed_from is None and rng.random() < 0.2:
            continue
        positions = [at for at in elements if chosen[at]]
        entries[array, chunk] = bits_at(table, tensors, array, chunk, positions)
    return staged(table, entries)


def of(source: StagedBits) -> dict[tuple[int, int], list[int]]:
    """The positions of every chunk."""
    return {
        (array, chunk): source.positions[source.starts[number] : source.starts[number + 1]].tolist()
        for number, (array, chunk) in enumerate(source.chunks.tolist())
    }


def bits_at(table: KernelTable, tensors: Tensors, array: int, chunk: int, positions: Any) -> dict[int, int]:
    grid = table.arrays[array].grid
    start, size = plain.chunk_box(grid.extent, grid.chunk, chunk)
    found = {}
    for position in positions:
        member, place, _ = plain.element_of(grid.extent, start, size, position)
        found[position] = int(tensors[array, member][place])
    return found


def staged(table: KernelTable, entries: Entries) -> StagedBits:
    """Chunks in the order of ``entries``, positions ascending."""
    places = list(entries)
    parts, offsets = [], [0]
    for array, chunk in places:
        bits = np.array(
            [bit for _, bit in sorted(entries[array, chunk].items())], table.arrays[array].storage
        )
        parts.append(bits.tobytes().ljust(-(-bits.nbytes // 8) * 8, b"\0"))
        offsets.append(offsets[-1] + len(parts[-1]))
    counts = [len(entries[place]) for place in places]
    positions = [at for place in places for at in sorted(entries[place])]
    return StagedBits(
        chunk_list([array for array, _ in places], [chunk for _, chunk in places]),
        np.cumsum([0, *counts], dtype=np.int64),
        np.array(positions, np.uint32),
        np.array(offsets, np.int64),
        np.frombuffer(b"".join(parts), np.uint8),
    )


def entries_of(table: KernelTable, source: StagedBits) -> Entries:
    """The inverse of ``staged``; sound positions and offsets are part of what it asserts."""
    rows = len(source.chunks)
    assert source.starts.dtype == source.offsets.dtype == np.int64
    assert source.positions.dtype == np.uint32
    assert source.bits.dtype == np.uint8
    assert source.starts.shape == source.offsets.shape == (rows + 1,)
    assert source.starts[0] == 0
    assert source.starts[-1] == len(source.positions)
    assert not (source.offsets % 8).any()
    found: Entries = {}
    for number, (array, chunk) in enumerate(source.chunks.tolist()):
        storage = table.arrays[array].storage
        positions = source.positions[source.starts[number] : source.starts[number + 1]].tolist()
        at = int(source.offsets[number])
        end = at + len(positions) * storage.itemsize
        assert end <= source.offsets[number + 1] <= len(source.bits)
        assert positions == sorted(set(positions))
        assert (array, chunk) not in found
        bits = source.bits[at:end].view(storage).tolist()
        found[array, chunk] = dict(zip(positions, bits, strict=True))
    return found


def same(first: StagedBits, second: StagedBits) -> bool:
    """Equal to the byte, padding included."""
    parts = ("chunks", "starts", "positions", "offsets", "bits")
    return all(getattr(first, part).tobytes() == getattr(second, part).tobytes() for part in parts)


def put(table: KernelTable, entries: Entries, tensors: Tensors) -> Tensors:
    """The tensors with these bits in them."""
    result = {key: bits.copy() for key, bits in tensors.items()}
    for (array, chunk), bits in entries.items():
        grid = table.arrays[array].grid
        start, size = plain.chunk_box(grid.extent, grid.chunk, chunk)
        for position, bit in bits.items():
            member, place, _ = plain.element_of(grid.extent, start, size, position)
            result[array, member][place] = bit
    return result
