"""Patches with every hash right: runs and positions that are none, and elements written twice."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from deltastore.validate import Level
from tests.kernels.forging import ForgedRun, runs_patch

from .against_packs import of_pack
from .attack import Attack
from .packs import joined, patches_of, rows_of


def _patch(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """The first patch replaced; length, hash and body size follow."""

    def changed(data: bytes) -> bytes:
        rows, patches = rows_of(data), patches_of(data)
        patches[0] = change(patches[0])
        return joined(data[:64], rows, patches)

    return changed


def _made(*runs: ForgedRun, count: int | None = None) -> Callable[[bytes], bytes]:
    """The first patch is one of these runs, over a chunk of 64 elements."""

    def changed(data: bytes) -> bytes:
        rows, patches = rows_of(data), patches_of(data)
        patches[0] = runs_patch(64, runs)
        rows[0][3] = sum(len(run.positions) for run in runs) if count is None else count
        rows[0][4] = 0
        return joined(data[:64], rows, patches)

    return changed


def _positions(
    *positions: int,
    low_bits: int = 0,
    width: int = 16,
    claimed: int | None = None,
    residues: Sequence[int] | None = None,
    reserved: int = 0,
) -> ForgedRun:
    return ForgedRun(width, low_bits, positions, residues or [1] * len(positions), claimed, reserved)


def _unused_bit(data: bytes) -> bytes:
    one = runs_patch(64, [_positions(1, width=2)])
    return one[:-1] + bytes([one[-1] | 0x80])


def attacks() -> list[Attack]:
    """All of them."""
    last = (1 << 32) - 1
    return [
        of_pack(
            "a patch of 600 bytes more",
            _patch(lambda data: data + bytes(600)),
            "bad_index",
            "DS043",
        ),
        of_pack("a patch of another length", _patch(lambda data: data + bytes(4)), "bad_patch", "DS034"),
        of_pack("a patch cut short", _patch(lambda data: data[:-4] or bytes(4)), "bad_patch", "DS034 DS031"),
        of_pack("no runs", _patch(lambda _: bytes(8)), "bad_patch", "DS031"),
        of_pack("7 runs", _patch(lambda _: struct.pack("<I", 7) + bytes(56)), "bad_patch", "DS031 DS034"),
        of_pack("4 billion runs", _patch(lambda _: struct.pack("<II", last, 0)), "bad_patch", "DS031 DS034"),
        of_pack(
            "a run of 4 billion", _made(_positions(1, claimed=last), count=1), "bad_patch", "DS031 DS034"
        ),
        of_pack(
            "a run of one more than the chunk",
            _made(_positions(*range(64), claimed=65), count=64),
            "bad_patch",
            "DS031 DS034",
        ),
        of_pack("a run of none", _made(_positions(1, claimed=0), count=1), "bad_patch", "DS031 DS034"),
        of_pack("low bits of 20", _made(_positions(1, low_bits=20), count=1), "bad_patch", "DS031 DS034"),
        of_pack("low bits of 255", _made(_positions(1, low_bits=255), count=1), "bad_patch", "DS031 DS034"),
        of_pack("a width of 3", _made(_positions(1, width=3), count=1), "bad_patch", "DS031"),
        of_pack("a width of 64", _made(_positions(1, width=64), count=1), "bad_patch", "DS031"),
        of_pack("reserved bits of a run", _made(_positions(1, reserved=1), count=1), "bad_patch", "DS031"),
        of_pack(
            "widths that fall", _made(_positions(1, width=8), _positions(2, width=4)), "bad_patch", "DS031"
        ),
        of_pack("a width twice", _made(_positions(1, width=8), _positions(2, width=8)), "bad_patch", "DS031"),
        of_pack(
            "a position in two runs",
            _made(_positions(1, width=8), _positions(1, width=16)),
            "bad_patch",
            "DS033",
        ),
        of_pack("a position beyond the chunk", _made(_positions(64, low_bits=3)), "bad_patch", "DS032 DS030"),
        of_pack("a position far beyond", _made(_positions(2**19 - 1, low_bits=19)), "bad_patch", "DS032"),
        of_pack("positions that fall", _made(_positions(5, 3, low_bits=3)), "bad_patch", "DS032"),
        of_pack("a position twice in a run", _made(_positions(3, 3, low_bits=3)), "bad_patch", "DS032"),
        of_pack("an unused bit", _patch(_unused_bit), "bad_patch", "DS030 DS032"),
        of_pack("more elements than the row says", _made(_positions(1, 2), count=1), "bad_patch", "DS044"),
        of_pack("fewer elements than the row says", _made(_positions(1, 2), count=3), "bad_patch", "DS044"),
        of_pack(
            "steps that do not fit",
            _made(_positions(0, 1, 2, 3, 4, 5, 6, 7, width=2, residues=[0, 1, 2, 3, 0, 1, 2, 3])),
            "bad_patch bad_digest",
            "DS036 DS046 DS062",
            level=Level.DEEP,
        ),
    ]
