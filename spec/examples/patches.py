"""The examples of patches (SPEC 9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spec.examples.dumps import Part, dump, listed
from spec.examples.encoders import Json, o, section, signed

__all__ = [
    "NARROW",
    "ONE_RUN",
    "TWO_RUNS",
    "patch_parts",
    "patch_text",
    "raw_text",
    "residues_text",
]


def _change(
    n: int, base: Mapping[int, int], rest: int, new: Mapping[int, int], *runs: tuple[int, int]
) -> Json:
    """A chunk of n BF16 elements ``rest``, of which some are ``base``, and what changes; runs are (w, L)."""
    old = [base.get(at, rest) for at in range(n)]
    return {"old": old, "new": dict(new), "runs": runs}


ONE_RUN: Final = _change(16, {9: 0x8000}, 0x3F80, {2: 0x3F81, 9: 0x0000, 12: 0x4040}, (16, 0))
NARROW: Final = _change(
    1024, {700: 0xBF80, 701: 0x0000}, 0x3F80, {5: 0x3F81, 700: 0xBF7F, 701: 0x8000}, (2, 6)
)
TWO_RUNS: Final = _change(
    64,
    {},
    0x3F80,
    {5 * i + 1: 0x3F81 if i % 2 == 0 else 0x3F7F for i in range(12)} | {40: 0xBF80},
    (2, 2),
    (16, 4),
)


def needed_width(old: int, new: int) -> int:
    """DS035: the smallest width that holds the step of a BF16 element."""
    step = abs(signed((o(new) - o(old)) % 2**16))
    return next(width for width in (2, 4, 8, 16) if width == 16 or step < 2 ** (width - 1))


def patch_parts(change: Json) -> list[Part]:
    """SPEC 9.1: the patch of a change, part by part."""
    old, new, floor = change["old"], change["new"], 0
    count = len(change["runs"])
    heads: list[Part] = [(count.to_bytes(4, "little"), f"R = {count}")]
    bodies: list[Part] = []
    for number, (width, low) in enumerate(change["runs"]):
        at = [p for p in sorted(new) if floor < needed_width(old[p], new[p]) <= width]
        high = [0] * (len(at) + (len(old) - 1 >> low))
        for i, position in enumerate(at):
            high[(position >> low) + i] = 1
        residues = [o(new[p]) % 2**width for p in at]
        run = f"run {number} " if count > 1 else ""
        head = bytes([width, low, 0, 0]) + len(at).to_bytes(4, "little")
        heads.append((head, f"{run}w = {width}, L = {low}, reserved, k = {len(at)}"))
        lows = [p % 2**low for p in at]
        if low:
            bodies.append((section(lows, low), f"{run}low: {listed(lows)} in {low} bits each"))
        else:
            bodies.append((b"", f"{run}low: 0 bits"))
        ones = [i for i, bit in enumerate(high) if bit]
        bodies.append((section(high, 1), f"{run}high: {len(high)} bits; ones at {listed(ones)}"))
        shown = " ".join(f"{one:04X}" for one in residues) if width == 16 else listed(residues)
        bodies.append((section(residues, width), f"{run}residues: {shown}"))
        floor = width
    return heads + bodies


def patch_text(change: Json) -> str:
    """What a patch is given, and its dump."""
    old, new = change["old"], change["new"]
    rest = max(set(old), key=old.count)
    others = " ".join(f"{at}:{bits:04X}" for at, bits in enumerate(old) if bits != rest)
    given = f"base  {len(old)} BF16 elements {rest:04X}" + (f", but {others}" if others else "")
    lines = [given, "new   " + " ".join(f"{at}:{bits:04X}" for at, bits in sorted(new.items()))]
    steps = [signed((o(bits) - o(old[at])) % 2**16) for at, bits in sorted(new.items())]
    lines += ["steps " + " ".join(f"{step:+d}" for step in steps), "", dump(patch_parts(change))]
    return "\n".join(lines)


RAW_BITS: Final = (0x01, 0xFF, 0x00, 0x7F, 0x80)


def raw_text() -> str:
    """A raw patch of five bytes."""
    bits = bytes(RAW_BITS)
    data = section(RAW_BITS, 8)
    return dump([(bits, f"new bits of {len(bits)} U8 elements"), (data[len(bits) :], "padding to a word")])


def residues_text() -> str:
    """SPEC 9.2, line by line."""
    lines = []
    for over, residue in ((0xBF80, 0), (0xBF7F, 0), (0x3F80, 1), (0x3F82, 1), (0x3F83, 1), (0x3F7E, 1)):
        step = (residue - o(over)) % 4
        if step == 2:
            said = "d = -2: refused (DS036)"
        else:
            d = signed(step, 2)
            said = f"d = {d:>2}, new = o({signed(o(over)) + d}) = {o((o(over) + d) % 2**16):04X}"
        lines.append(
            f"residue {residue} over {over:04X}: ({residue} - ({signed(o(over))})) mod 4 = {step}, {said}"
        )
    return "\n".join(lines)
