"""SPEC 9: patches."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from spec.decoder.elements import U64, WIDTHS, ordered
from spec.decoder.refusal import need

Position = npt.NDArray[np.int64]


class Run(NamedTuple):
    """Elements whose residues have one width; a raw patch is one run over the whole chunk."""

    width: int
    positions: Position
    residues: U64


def section(patch: bytes, at: int, items: int, width: int) -> tuple[U64, int]:
    """DS030: the numbers of `width` bits in a bit section, lowest bit first, and the offset behind it."""
    end = at + -(-items * width // 32) * 4
    need(end <= len(patch), "bad_patch", "DS034", "a section ends behind the patch")
    bits = np.unpackbits(np.frombuffer(patch[at:end], np.uint8), bitorder="little")
    need(not bits[items * width :].any(), "bad_patch", "DS030", "padding is not zero")
    numbers = np.zeros(items, np.uint64)
    for bit in range(width):
        numbers |= bits[bit : items * width : width].astype(np.uint64) << np.uint64(bit)
    return numbers, end


def decode_run(patch: bytes, at: int, header: bytes, n: int) -> tuple[Run, int]:
    """SPEC 9.1: a run whose body starts at `at`, and the offset behind it."""
    width, low_bits, reserved, k = struct.unpack("<BBHI", header)
    good = width in (2, 4, 8, 16, 32, 64) and low_bits <= 19 and reserved == 0 and 1 <= k <= n
    need(good, "bad_patch", "DS031", "a run header")
    low, at = section(patch, at, k, low_bits)
    high, at = section(patch, at, k + ((n - 1) >> low_bits), 1)
    residues, at = section(patch, at, k, width)
    ones = np.flatnonzero(high)
    need(len(ones) == k, "bad_patch", "DS032", "ones of a high section")
    positions = (ones - np.arange(k)) << low_bits | low.astype(np.int64)
    ascend = (np.diff(positions) > 0).all() and positions[-1] < n
    need(ascend, "bad_patch", "DS032", "positions do not ascend below N")
    return Run(width, positions, residues), at


def decode_patch(patch: bytes, dtype: str, n: int, encoding: int) -> list[Run]:
    """SPEC 9.1 and 9.3: the runs of a patch of a chunk of n elements."""
    if encoding == 1:
        whole = -(-n * WIDTHS[dtype] // 32) * 4
        need(len(patch) == whole, "bad_patch", "DS043", "the length of a raw patch")
        bits, _ = section(patch, 0, n, WIDTHS[dtype])
        return [Run(WIDTHS[dtype], np.arange(n), ordered(bits, dtype))]
    need(encoding == 0, "bad_patch", "DS041", "an unknown encoding")
    need(len(patch) >= 4, "bad_patch", "DS034", "too short for its number of runs")
    r = int.from_bytes(patch[:4], "little")
    need(1 <= r <= 6, "bad_patch", "DS031", "number of runs")
    at = 4 + 8 * r
    need(at <= len(patch), "bad_patch", "DS034", "too short for its run headers")
    runs: list[Run] = []
    for start in range(4, 4 + 8 * r, 8):
        narrower = runs[-1].width if runs else 0
        ascends = narrower < patch[start] <= WIDTHS[dtype]
        need(ascends, "bad_patch", "DS031", "widths do not ascend up to the element's")
        run, at = decode_run(patch, at, patch[start : start + 8], n)
        runs.append(run)
    need(at == len(patch), "bad_patch", "DS034", "bytes behind the last section")
    positions = np.concatenate([run.positions for run in runs])
    need(len(np.unique(positions)) == len(positions), "bad_patch", "DS033", "a position in two runs")
    return runs


def apply_patch(runs: list[Run], dtype: str, old: U64) -> U64:
    """SPEC 9.2: the new bits of a chunk, from those that stand there."""
    result = old.copy()
    for run in runs:
        new = run.residues
        if run.width < WIDTHS[dtype]:
            base, half = ordered(old[run.positions], dtype), np.uint64(2 ** (run.width - 1))
            d = (new - base) & np.uint64(2**run.width - 1)
            fits = not (d == half).any()
            need(fits, "bad_patch", "DS036", "neither the base's value nor the new one stands there")
            d = np.where(d > half, d - np.uint64(2**run.width), d)
            new = (base + d) & np.uint64(2 ** WIDTHS[dtype] - 1)
        result[run.positions] = ordered(new, dtype)
    return result
