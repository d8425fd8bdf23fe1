"""Packs for any table, and what breaks one member of them."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from deltastore.errors import CorruptError
from deltastore.format.digest import Digester
from deltastore.format.pack import HEADER_BYTES, ROW, Pack, PackBuilder, PackIndex
from deltastore.format.table import TensorTable

from .corpus import MOTIONS, Change, make_change

NONCE = bytes(range(16))
Rows = np.ndarray[Any, Any]
Key = tuple[int, int]


def changes_of(table: TensorTable, rng: np.random.Generator, share: float) -> dict[Key, Change]:
    """Changes of about ``share`` of the chunks by (array, chunk), of one chunk at least, in pack order."""
    order = table.chunk_order().tolist()
    chosen = rng.random(len(order)) < share
    chosen[rng.integers(0, len(order))] = True
    found = {}
    for number in np.flatnonzero(chosen):
        _, array, chunk = order[number]
        spec = table.arrays[array]
        elements = spec.grid.box(chunk).elements
        motion = MOTIONS[int(rng.integers(0, len(MOTIONS)))]
        found[array, chunk] = make_change(spec.element, elements, float(rng.random()), motion, rng)
    return found


def pack_of(table: TensorTable, changed: dict[Key, Change], *, may_be_raw: bool = True) -> Pack:
    """One pack of these changes, which are in pack order."""
    builder, digester = PackBuilder(7, NONCE), Digester(table)
    slabs = {(array, chunk): slab for slab, array, chunk in table.chunk_order().tolist()}
    for (array, chunk), change in changed.items():
        at, box = change.positions, table.arrays[array].grid.box(chunk)
        difference = digester.difference(array, box, at, change.old[at], change.new[at])
        encoded = change.encode(may_be_raw=may_be_raw)
        builder.add(slabs[array, chunk], array, chunk, encoded, difference)
    return builder.finish()


def rows_of(data: bytes) -> Rows:
    """A copy of the index rows."""
    count = int.from_bytes(data[12:16], "little")
    return np.frombuffer(data, dtype=ROW, count=count, offset=HEADER_BYTES).copy()


def with_rows(data: bytes, rows: Rows) -> bytes:
    """The pack with other index rows; the header says how many there are, and how long their patches are."""
    patches = data[HEADER_BYTES + ROW.itemsize * int.from_bytes(data[12:16], "little") :]
    body = int(rows["length"].astype(np.int64).sum())
    header = data[:12] + len(rows).to_bytes(4, "little") + data[16:40] + body.to_bytes(8, "little")
    return header + data[48:HEADER_BYTES] + rows.tobytes() + patches


def with_row(data: bytes, number: int, **members: int) -> bytes:
    """The pack with some members of one row replaced."""
    rows = rows_of(data)
    for member, value in members.items():
        rows[member][number] = value
    return with_rows(data, rows)


def with_patch(data: bytes, number: int, patch: bytes, **members: int) -> bytes:
    """The pack with another patch in one row, whose length and hash are right again."""
    rows = rows_of(data)
    starts = HEADER_BYTES + rows.nbytes + np.concatenate([[0], np.cumsum(rows["length"].astype(np.int64))])
    start, end = int(starts[number]), int(starts[number + 1])
    moved = with_row(data, number, length=len(patch), **members)
    rows = rows_of(moved)
    rows["check"][number] = np.void(hashlib.sha256(patch).digest()[:16])
    return with_rows(moved[:start] + patch + moved[end:], rows)


def problem_of(data: bytes, table: TensorTable) -> CorruptError | None:
    """What stops a reader that takes header, index and then every patch; None if nothing does."""
    try:
        index = PackIndex.parse(data, table, "packs/7.pack")
        for _, row, start, end in index.patches():
            index.read_patch(row, memoryview(data)[start:end], table)
    except CorruptError as error:
        return error
    return None
