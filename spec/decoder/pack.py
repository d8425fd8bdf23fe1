"""SPEC 10: packs."""

from __future__ import annotations

import hashlib
import math
import struct
from itertools import pairwise
from typing import NamedTuple

from spec.decoder.elements import WIDTHS
from spec.decoder.patch import Run, decode_patch
from spec.decoder.refusal import need
from spec.decoder.table import Array, Table


class Row(NamedTuple):
    """An index row, and where in the pack its patch starts."""

    array: int
    chunk: int
    length: int
    elements: int
    encoding: int
    difference: int
    sha256: bytes
    offset: int


class Pack(NamedTuple):
    """A pack whose index has been checked; `slabs` are those of its rows."""

    version: int
    rows: list[Row]
    slabs: list[int]
    raw: bytes

    def runs(self, row: Row, array: Array) -> list[Run]:
        """DS044: the runs of a row's patch."""
        patch = self.raw[row.offset : row.offset + row.length]
        same = hashlib.sha256(patch).digest()[:16] == row.sha256
        need(same, "bad_hash", "DS044", "the hash of a patch")
        runs = decode_patch(patch, array.dtype, array.elements(row.chunk), row.encoding)
        written = sum(len(run.positions) for run in runs)
        need(written == row.elements, "bad_patch", "DS044", "the count of a patch")
        return runs


def check_number(row: Row, table: Table) -> Array:
    """DS041: the array of a row."""
    need(row.array < len(table.arrays), "bad_index", "DS041", "an array number")
    array = table.arrays[row.array]
    need(row.chunk < math.prod(array.grid()), "bad_index", "DS041", "a chunk number")
    n = array.elements(row.chunk)
    need(1 <= row.elements <= n, "bad_index", "DS041", "a count")
    return array


def check_length(row: Row, array: Array) -> None:
    """DS043: the length of a row's patch."""
    n = array.elements(row.chunk)
    size = n * WIDTHS[array.dtype] // 8
    raw = row.length == -(-size // 4) * 4 and row.elements == n
    need(row.encoding == 0 or raw, "bad_index", "DS043", "length or count of a raw row")
    need(row.length <= 2 * size + 256, "bad_index", "DS043", "a patch far longer than its chunk")


def decode_pack(raw: bytes, table: Table) -> Pack:
    """DS040 to DS043: a pack, its index checked, its patches not yet."""
    need(len(raw) <= 2**30, "too_large", "DS100", "a pack")
    need(len(raw) >= 64 and raw[:8] == b"\x93DSPACK\n", "bad_index", "DS040", "no pack")
    form, flags, n, version, total = struct.unpack("<HHIQ16xQ", raw[8:48])
    need(form <= 1, "newer_format", "DS040", "a pack's format")
    plain = form == 1 and flags == 0 and not any(raw[48:64])
    need(plain, "bad_index", "DS040", "format, flags or reserved bytes")
    at = 64 + 44 * n
    need(1 <= n <= 2**22 and at <= len(raw), "bad_index", "DS040", "number of rows")
    need(at + total == len(raw), "bad_index", "DS040", "size of all patches")
    rows: list[Row] = []
    for fields in struct.iter_unpack("<5IQ16s", raw[64:at]):
        rows.append(Row._make((*fields, at)))
        at += rows[-1].length
    need(at == len(raw), "bad_index", "DS040", "lengths do not add up")
    whole = all(row.length > 0 and row.length % 4 == 0 for row in rows)
    need(whole, "bad_index", "DS041", "a length that is no positive multiple of 4")
    need(all(row.encoding in (0, 1) for row in rows), "bad_index", "DS041", "an encoding")
    arrays = [check_number(row, table) for row in rows]
    for row, array in zip(rows, arrays, strict=True):
        check_length(row, array)
    slabs = [array.slab_of(row.chunk) for row, array in zip(rows, arrays, strict=True)]
    keys = [(slab, row.array, row.chunk) for slab, row in zip(slabs, rows, strict=True)]
    need(all(one < two for one, two in pairwise(keys)), "bad_index", "DS042", "rows do not ascend")
    return Pack(version, rows, slabs, raw)
