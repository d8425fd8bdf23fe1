"""Writes the seeds of the fuzzed decoder: patches of small models in the form that fuzz_decoder.cpp reads.

``python -m tests.kernels.native.write_corpus``, or ``make fuzz-corpus``. The same bytes on every machine.
"""

from __future__ import annotations

import struct
from itertools import product
from pathlib import Path

import numpy as np

from deltastore.kernels.grid import ChunkGrid
from deltastore.kernels.pieces import GridArray, Piece, Pieces
from deltastore.kernels.reference.encode import encode_changed
from deltastore.kernels.rows import EncodedPatches
from tests.kernels.forging import DAMAGES, damaged, pack, sound_pack, unpack
from tests.kernels.models import Bits, Change, every_chunk, moved, table_of

CORPUS = Path(__file__).parent / "corpus"
AS_THE_PATCH_SAYS = 2**32 - 1
"""The count of a row that the program works out itself."""

SHAPES = ((1, 40, 60, 40, 60), (2, 7, 33, 3, 20), (3, 1, 60, 1, 61), (2, 20, 11, 20, 11))
"""Members, tensor axes, chunk axes."""


def base_bits(array: GridArray, seed: int) -> Bits:
    """The weights that the program starts with: see ``Memory::fill`` of fuzz_decoder.cpp."""
    number = np.arange(1, np.prod(array.grid.extent) + 1, dtype=np.uint64)
    mixed = number * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed * 0xBF58476D1CE4E5B9 % 2**64)
    return (mixed >> np.uint64(64 - array.bits)).astype(array.storage).reshape(array.grid.extent)


def input_of(array: GridArray, seed: int, layout: int, cut: int, patches: EncodedPatches) -> bytes:
    """At most four patches of one array, as the fuzzed program takes them."""
    members, rows, columns = array.grid.extent
    head = array.itemsize.bit_length() - 1 | array.floating << 2 | layout << 3
    last = (members - 1) | (array.grid.chunk[0] - 1) << 4
    model = bytes(
        (head, rows - 1, columns - 1, array.grid.chunk[1] - 1, array.grid.chunk[2] - 1, seed, cut, last)
    )
    entries = unpack(patches.rows, patches.body)[:4]
    listed = b"".join(
        struct.pack("<BBHI", chunk, encoding, len(data), AS_THE_PATCH_SAYS)
        for _, chunk, _, encoding, data in entries
    )
    return model + bytes((len(entries),)) + listed + b"".join(entry[-1] for entry in entries)


def seeds_of(itemsize: int, floating: bool, shape: tuple[int, ...], seed: int) -> list[bytes]:
    """A real change, a sound pack of odd forms, and one damaged in one way."""
    rng = np.random.default_rng(seed)
    members, rows, columns, *steps = shape
    grid = ChunkGrid((members, rows, columns), (1, *steps))
    array = GridArray(grid, itemsize, floating)
    table = table_of(array)
    old = base_bits(array, seed)
    chosen = rng.random(old.shape) < (0.05, 0.4)[seed % 2]
    new = np.where(chosen, moved(array, old.ravel(), "edges", rng).reshape(old.shape), old).astype(old.dtype)
    before, after = ({(0, member): bits[member] for member in range(members)} for bits in (old, new))
    change = Change(table, before, after)
    sides = [
        Pieces(table, [Piece(0, member, (0, 0), bits) for (_, member), bits in tensors.items()])
        for tensors in (change.after, change.before)
    ]
    real = encode_changed(sides[0], sides[1], every_chunk(table))
    odd = EncodedPatches(*sound_pack(table, rng), real.changed)
    four = pack(unpack(real.rows, real.body)[:4])
    broken = EncodedPatches(*damaged(*four, DAMAGES[seed % len(DAMAGES)], rng), real.changed)
    cut = seed * 37 % 128
    return [input_of(array, seed, seed % 4, cut, patches) for patches in (real, odd, broken)]


def main() -> None:
    for old in CORPUS.glob("seed-*"):
        old.unlink()
    number = 0
    for seed, (itemsize, floating, shape) in enumerate(product((1, 2, 4, 8), (True, False), SHAPES)):
        for data in seeds_of(itemsize, floating, shape, seed):
            if len(data) <= 1200:
                (CORPUS / f"seed-{number:03}").write_bytes(data)
                number += 1
    print(f"{number} seeds, {sum(path.stat().st_size for path in CORPUS.glob('seed-*'))} bytes")


if __name__ == "__main__":
    main()
