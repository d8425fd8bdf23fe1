"""Packs as an attacker makes them of sound ones: any field, row or patch, with hashes that fit."""

from __future__ import annotations

import hashlib
import struct

from tests.kernels.forging import DAMAGES, damaged_patch

from .damage import Draw, pick

_ROW = struct.Struct("<IIIIIQ16s")
_HEADER_FIELDS = {"format": (8, 2), "flags": (10, 2), "rows": (12, 4), "version": (16, 8), "nonce": (24, 16)}
_HEADER_FIELDS |= {"body": (40, 8), "reserved": (48, 16), "magic": (0, 8)}
_ROW_FIELDS = ("array", "chunk", "length", "count", "encoding", "difference", "check")

Row = list[int | bytes]


def rows_of(data: bytes) -> list[Row]:
    """The index rows: array, chunk, length, count, encoding, difference, check."""
    count = int.from_bytes(data[12:16], "little")
    return [list(_ROW.unpack_from(data, 64 + 44 * row)) for row in range(count)]


def patches_of(data: bytes) -> list[bytes]:
    """The patches, in the order of rows."""
    rows, found = rows_of(data), []
    at = 64 + 44 * len(rows)
    for row in rows:
        found.append(data[at : at + int(row[2])])
        at += int(row[2])
    return found


def joined(header: bytes, rows: list[Row], patches: list[bytes], *, lengths: bool = True) -> bytes:
    """A pack of these rows and patches. Hashes are right, and ``lengths`` too."""
    for row, patch in zip(rows, patches, strict=True):
        row[6] = hashlib.sha256(patch).digest()[:16]
        if lengths:
            row[2] = len(patch)
    body = sum(map(len, patches))
    front = header[:12] + len(rows).to_bytes(4, "little") + header[16:40] + body.to_bytes(8, "little")
    return front + header[48:64] + b"".join(_ROW.pack(*row) for row in rows) + b"".join(patches)


def with_changed_field(data: bytes, draw: Draw) -> tuple[str, bytes]:
    """One field of the header or of a row has another value."""
    values = (0, 1, 2, 3, 0xFF, 1 << 16, (1 << 20) + 1, 1 << 31, (1 << 32) - 1, (1 << 64) - 1)
    if draw.random() < 0.3:
        name = pick(draw, sorted(_HEADER_FIELDS))
        at, size = _HEADER_FIELDS[name]
        old = int.from_bytes(data[at : at + size], "little")
        new = pick(draw, (*values, old + 1, old - 1, old ^ 1 << int(draw.integers(8 * size)))) % (
            1 << 8 * size
        )
        return f"{name} = {new}", data[:at] + new.to_bytes(size, "little") + data[at + size :]
    rows = rows_of(data)
    number, field = int(draw.integers(len(rows))), int(draw.integers(len(_ROW_FIELDS)))
    if field == 6:
        at = 64 + 44 * number + 28 + int(draw.integers(16))
        return f"check of row {number}", data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    row, size = rows[number], 8 if field == 5 else 4
    old = int(row[field])
    others = [int(one[field]) for one in rows]
    new = pick(draw, (*values, *others, old + 1, old - 1, old + 4, old - 4, old ^ 1)) % (1 << 8 * size)
    row[field] = new
    at = 64 + 44 * number
    said = f"{_ROW_FIELDS[field]} of row {number} = {new}"
    return said, data[:at] + _ROW.pack(*row) + data[at + 44 :]


def with_another_patch(data: bytes, draw: Draw) -> tuple[str, bytes]:
    """One patch is damaged, and has the length and the hash that its row says."""
    rows, patches = rows_of(data), patches_of(data)
    number = int(draw.integers(len(rows)))
    how = pick(draw, [one for one in DAMAGES if "row" not in one])
    changed = damaged_patch(patches[number], how, draw)
    if draw.random() < 0.7:
        changed = changed[: len(changed) // 4 * 4] or bytes(4)
    patches[number] = changed
    return f"{how} in patch {number}", joined(data[:64], rows, patches)


def with_moved_rows(data: bytes, draw: Draw) -> tuple[str, bytes]:
    """Rows, or only their patches, in another order, twice, or left out."""
    rows, patches = rows_of(data), patches_of(data)
    one, other = (int(at) for at in draw.integers(0, len(rows), 2))
    how = pick(draw, ("patches swapped", "rows swapped", "places swapped", "row twice", "row left out"))
    if how == "patches swapped":
        patches[one], patches[other] = patches[other], patches[one]
        for field in (3, 4):
            rows[one][field], rows[other][field] = rows[other][field], rows[one][field]
    elif how == "rows swapped":
        rows[one], rows[other] = rows[other], rows[one]
        patches[one], patches[other] = patches[other], patches[one]
    elif how == "places swapped":
        rows[one][:2], rows[other][:2] = rows[other][:2], rows[one][:2]
    elif how == "row twice":
        rows.insert(one, list(rows[one]))
        patches.insert(one, patches[one])
    elif len(rows) > 1:
        del rows[one], patches[one]
    return f"{how}: {one}, {other}", joined(data[:64], rows, patches)
