"""Patches that no writer would write: sound ones in odd forms, and broken ones of every kind."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deltastore.kernels.pieces import KernelTable
from deltastore.kernels.rows import ROW, Octets, Rows
from tests.format import naive

DAMAGES = (
    "flip a bit",
    "flip bits",
    "flip the head",
    "poke the head",
    "word",
    "cut",
    "cut a word",
    "extend",
    "drop a word",
    "insert a word",
    "repeat",
    "swap sections",
    "a field of a row",
    "two rows change places",
    "body of another row",
)
WORDS = (0, 1, 2, 31, 0xFF, 0xFFFF, 2**19, 2**20, 2**31 - 1, 2**31, 2**32 - 4, 2**32 - 1)


@dataclass(frozen=True)
class ForgedRun:
    """A run as its sections will say it, whether or not that makes sense."""

    width: int
    low_bits: int
    positions: Sequence[int]
    residues: Sequence[int]
    claimed: int | None = None
    reserved: int = 0


def section(values: Sequence[int], width: int) -> bytes:
    """Fields of ``width`` bits, lowest bit first, padded to words."""
    number = 0
    for place, value in enumerate(values):
        number |= (value & ((1 << width) - 1)) << (place * width)
    return number.to_bytes(naive.section_size(len(values) * width), "little")


def runs_patch(elements: int, runs: Sequence[ForgedRun]) -> bytes:
    """Encoding 0. A position beyond the chunk, or out of order, goes into the sections as it is."""
    heads, bodies = [], []
    for run in runs:
        count = len(run.positions)
        claimed = count if run.claimed is None else run.claimed
        heads.append(struct.pack("<BBHI", run.width, run.low_bits, run.reserved, claimed))
        ones = [(position >> run.low_bits) + place for place, position in enumerate(run.positions)]
        size = naive.section_size(count + ((elements - 1) >> run.low_bits))
        high = sum({1 << one for one in ones}) & ((1 << 8 * size) - 1)
        bodies += [section(run.positions, run.low_bits), high.to_bytes(size, "little")]
        bodies.append(section(run.residues, run.width))
    return b"".join([struct.pack("<I", len(runs)), *heads, *bodies])


def pack(entries: Sequence[tuple[int, int, int, int, bytes]]) -> tuple[Rows, Octets]:
    """(array, chunk, count, encoding, patch) of each row -> rows and their body."""
    rows = np.zeros(len(entries), ROW)
    for number, (array, chunk, count, encoding, data) in enumerate(entries):
        rows[number] = (array, chunk, len(data), count, encoding, 0, bytes(16))
    return rows, np.frombuffer(b"".join(entry[-1] for entry in entries), np.uint8)


def unpack(rows: Rows, body: Octets) -> list[tuple[int, int, int, int, bytes]]:
    """The inverse."""
    ends = np.cumsum(rows["length"]).tolist()
    return [
        (array, chunk, count, encoding, body[end - length : end].tobytes())
        for (array, chunk, length, count, encoding, *_), end in zip(rows.tolist(), ends, strict=True)
    ]


def damaged(rows: Rows, body: Octets, way: str, rng: np.random.Generator) -> tuple[Rows, Octets]:
    """One patch or row of a sound pack, broken in one of ``DAMAGES``; lengths follow unless they are it."""
    if way == "a field of a row":
        changed = rows.copy()
        field = rng.choice(["array", "chunk", "length", "count", "encoding"])
        target = int(rng.integers(0, len(rows)))
        near = int(changed[field][target]) + int(rng.integers(-4, 5))
        changed[field][target] = rng.choice([near % 2**32, int(rng.choice(WORDS))])
        return changed, body
    entries = unpack(rows, body)
    number, other = (int(rng.integers(0, len(entries))) for _ in range(2))
    array, chunk, count, encoding, data = entries[number]
    if way == "two rows change places":
        entries[number], entries[other] = (
            (*entries[other][:2], *entries[number][2:]),
            (*entries[number][:2], *entries[other][2:]),
        )
    elif way == "body of another row":
        entries[number] = (array, chunk, *entries[other][2:])
    else:
        entries[number] = (array, chunk, count, encoding, damaged_patch(data, way, rng))
    return pack(entries)


def damaged_patch(data: bytes, way: str, rng: np.random.Generator) -> bytes:
    octets = np.frombuffer(data, np.uint8).copy()
    front, at = min(32, len(data)), int(rng.integers(0, len(data)))
    aligned, word = at & ~3, struct.pack("<I", int(rng.choice(WORDS)))
    if way.startswith("flip"):
        reach = front if way == "flip the head" else len(data)
        for place in rng.integers(0, reach, 1 if way == "flip a bit" else int(rng.integers(1, 4))):
            octets[place] ^= 1 << int(rng.integers(0, 8))
        return octets.tobytes()
    if way == "poke the head":
        octets[rng.integers(0, front)] = rng.integers(0, 256)
        return octets.tobytes()
    if way == "swap sections":
        low, high = sorted(int(place) & ~3 for place in rng.integers(0, len(data) + 1, 2))
        return data[:low] + data[high:] + data[low:high]
    return {
        "word": data[:aligned] + word + data[aligned + 4 :],
        "cut": data[:at],
        "cut a word": data[:-4],
        "extend": data + rng.bytes(int(rng.integers(1, 9))),
        "drop a word": data[:aligned] + data[aligned + 4 :],
        "insert a word": data[:aligned] + word + data[aligned:],
        "repeat": data + data,
    }[way]


def sound_patch(elements: int, bits: int, rng: np.random.Generator) -> tuple[int, bytes, dict[int, int]]:
    """(count, patch, width of each position): sound, of any widths and any L, mostly not the smallest."""
    widths = [width for width in naive.WIDTHS if width <= bits]
    chosen = sorted(rng.permutation(widths)[: rng.integers(1, len(widths) + 1)].tolist())[:elements]
    density = rng.choice([0.0, 0.01, 0.1, 0.5, 1.0])
    owner = np.where(rng.random(elements) < density, rng.integers(0, len(chosen), elements), -1)
    owner[rng.permutation(elements)[: len(chosen)]] = np.arange(len(chosen))
    runs: list[ForgedRun] = []
    found: dict[int, int] = {}
    for number, width in enumerate(chosen):
        positions = np.flatnonzero(owner == number).tolist()
        residues = [int.from_bytes(rng.bytes(8), "little") % 2**width for _ in positions]
        low_bits = int(rng.choice([0, 1, 7, 8, 9, 16, 19, int(rng.integers(0, 20))]))
        runs.append(ForgedRun(width, low_bits, positions, residues))
        found |= dict.fromkeys(positions, width)
    return len(found), runs_patch(elements, runs), found


def sound_pack(table: KernelTable, rng: np.random.Generator) -> tuple[Rows, Octets]:
    """A sound patch for every chunk of a table, in odd forms."""
    entries = []
    for number, array in enumerate(table.arrays):
        for chunk, box in array.grid.boxes():
            if rng.random() < 0.15:
                size = naive.section_size(box.elements * array.bits)
                used = rng.bytes(box.elements * array.itemsize).ljust(size, b"\0")
                entries.append((number, chunk, box.elements, 1, used))
            else:
                count, data, _ = sound_patch(box.elements, array.bits, rng)
                entries.append((number, chunk, count, 0, data))
    return pack(entries)
