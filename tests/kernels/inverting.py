"""Boxes, FP32 state and rules for tests of the inversion, and its formulas in plain numbers."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from deltastore.kernels import cpu
from deltastore.kernels.blocks import Blocks, BoxOf
from deltastore.kernels.cpu import block_digests as cpu_digests
from deltastore.kernels.cpu import inversion as cpu_inversion
from deltastore.kernels.inversion import RULE, Inverted, Span
from deltastore.kernels.reference.block_digests import digest_blocks
from deltastore.kernels.reference.inversion import invert, invert_elements

Floats = NDArray[np.float32]
Bits = NDArray[np.uint16]
Rules = np.ndarray[Any, Any]
Invert = Callable[[Blocks, Sequence[Span], Rules, NDArray[np.uint64], Bits, Bits], Inverted]
Digest = Callable[[Blocks, np.ndarray[Any, Any]], NDArray[np.uint64]]

LEVELS: Final = [level for level in cpu.Instructions if level <= cpu.supported_instructions()]
WAYS: Final = {f"{level.name} on {threads}": (level, threads) for level in LEVELS for threads in (1, 3)}

INVERT: Final[dict[str, Invert]] = {
    name: partial(cpu_inversion.invert, threads=threads, instructions=level)
    for name, (level, threads) in WAYS.items()
}
DIGEST: Final[dict[str, Digest]] = {
    name: partial(cpu_digests.digest_blocks, threads=threads, instructions=level)
    for name, (level, threads) in WAYS.items()
}


def _bits(digits: str) -> NDArray[np.uint32]:
    return np.array([int(each, 16) for each in digits.split()], np.uint32)


EDGES: Final = _bits(
    "0 1 7FFF 8000 8001 18000 7FFFFF 800000 808000 3F7FFFFF 3F7F8000 3F800000 3F808000 3F818000 3F817FFF "
    "3F818001 7F7FFFFF"
)
"""FP32 bits, but for the sign: zero, denormals, binade edges, ties of BF16 and next to them, the greatest."""

NANS: Final = _bits("7F800000 7F800001 7FA00000 7FC00000 7FFFFFFF")
"""Infinity, signalling and quiet NaNs."""


def floats_of(bits: NDArray[Any]) -> Floats:
    return bits.astype(np.uint32).view(np.float32)


def signs(count: int, rng: np.random.Generator) -> NDArray[np.uint32]:
    return rng.integers(0, 2, count, dtype=np.uint32) << np.uint32(31)


def _ordinary(count: int, rng: np.random.Generator) -> Floats:
    return rng.normal(0, 0.02, count).astype(np.float32)


def _midpoints(count: int, rng: np.random.Generator) -> Floats:
    ties = (_ordinary(count, rng).view(np.uint32) | np.uint32(0xFFFF)) ^ np.uint32(0x7FFF)
    return floats_of(ties.astype(np.int64) + rng.integers(-40, 41, count))


def _edges(count: int, rng: np.random.Generator) -> Floats:
    return floats_of(rng.choice(EDGES, count) | signs(count, rng))


def _binades(count: int, rng: np.random.Generator) -> Floats:
    near = (rng.integers(1, 254, count) << 23) + rng.integers(-2, 3, count)
    return floats_of(near | signs(count, rng))


def _any(count: int, rng: np.random.Generator) -> Floats:
    return floats_of(rng.integers(0, 1 << 32, count))


def _nans(count: int, rng: np.random.Generator) -> Floats:
    bits = np.where(rng.random(count) < 0.1, rng.choice(NANS, count), rng.choice(EDGES, count))
    return floats_of(bits | signs(count, rng))


FINITE: Final = {"ordinary": _ordinary, "midpoints": _midpoints, "edges": _edges, "binades": _binades}
FILLS: Final = {**FINITE, "any bits": _any, "infinities and NaNs": _nans}


def a_rule(rng: np.random.Generator) -> tuple[float, ...]:
    """A row of ``RULE``: ordinary coefficients, none at all, and such as make every element uncertain."""
    choices = ((1e-6, 0.0, 0.1), (1.0, 0.3), (1e-8, 0.0), (1.0, 1.00001), (2e-7, 0.0, 3e-3), (1e-6, 0.0))
    return *(float(rng.choice(each)) for each in choices), float(rng.choice((0.0, 1e-44, 1e-30)))


SHAPES: Final = (
    BoxOf((5, 1000), (0, 0), (5, 1000), 3),
    BoxOf((9, 500), (2, 13), (7, 401), 5),
    BoxOf((4, 5, 6), (1, 1, 1), (2, 3, 5), 7),
    BoxOf((), (), (), 9),
    BoxOf((1,), (0,), (1,), 11),
    BoxOf((900, 3), (1, 1), (850, 1), 13),
    BoxOf((1 << 40,), (1 << 39,), (6500,), 15),
    BoxOf((3, 1, 2500), (1, 0, 0), (1, 1, 2500), 17),
)
"""Whole, cut on one axis or on all, of no axis, of one element, far beyond 2**31, a block and a bit."""


def laid_out(values: Floats, size: tuple[int, ...], how: str) -> Floats:
    """The values as an array of that size, laid out in one of ``LAYOUTS``."""
    view = values.reshape(size)
    if not size or how == "plain":
        return view
    if how == "transposed":
        return np.asfortranarray(view)
    if how == "reversed":
        back = tuple(slice(None, None, -1) for _ in size)
        return view[back].copy()[back]
    if how == "padded":
        inner = np.zeros((*size[:-1], size[-1] + 5), np.float32)[..., : size[-1]]
    else:
        inner = np.zeros([2 * length for length in size], np.float32)[
            tuple(slice(None, None, 2) for _ in size)
        ]
    inner[...] = view
    return inner


LAYOUTS: Final = ("plain", "transposed", "reversed", "spaced", "padded")


@dataclass(frozen=True)
class Case:
    """What an inversion is given, but for the digests that are wanted."""

    blocks: Blocks
    spans: list[Span]
    rules: Rules

    def run(self, call: Invert, wanted: NDArray[np.uint64]) -> tuple[Bits, Bits, Inverted]:
        """(new, old, what it gives), with room behind the elements that must stay as it was."""
        new, old = np.full((2, self.blocks.elements + 3), 0xABCD, np.uint16)
        found = call(self.blocks, self.spans, self.rules, wanted, new, old)
        assert new[-3:].tolist() == old[-3:].tolist() == [0xABCD] * 3
        return new[:-3], old[:-3], found

    def elements(self) -> list[NDArray[Any]]:
        """New, old, low, high and uncertain of all elements, by the reference."""
        found = [
            invert_elements(span.master, span.mean, span.square, self.rules[span.rule]) for span in self.spans
        ]
        return [np.concatenate([np.ravel(part) for part in parts]) for parts in zip(*found, strict=True)]

    def wanted(self, rng: np.random.Generator, *, known: bool = True) -> NDArray[np.uint64]:
        """For each block the digest of its old bits, of other candidates, of the new bits, or of nothing.

        Without ``known`` only the last two.
        """
        new, old, low, high, _ = self.elements()
        pick = rng.integers(0, 3, len(old))
        other = np.where(pick == 0, old, np.where(pick == 1, low, high))
        other = np.where((other & 0x7FFF) > 0x7F80, old, other)  # which NaN it is, hardware says
        sums = np.stack(
            [digest_blocks(self.blocks, new), rng.integers(0, 1 << 63, len(self.blocks), np.uint64)]
            + [digest_blocks(self.blocks, bits) for bits in (old, other) if known]
        )
        chosen: NDArray[np.uint64] = np.take_along_axis(
            sums, rng.integers(0, len(sums), (1, len(self.blocks))), 0
        )[0]
        return chosen


def case_of(boxes: tuple[BoxOf, ...], fill: str, rng: np.random.Generator, layout: str = "") -> Case:
    """Every array filled and laid out by itself, in ``layout`` or in any; two rules."""
    spans = []
    for box in boxes:
        parts = []
        for kind in range(3):
            values = FILLS[fill if rng.random() < 0.7 else "ordinary"](box.elements, rng)
            if kind == 2 and (fill in FINITE or rng.random() < 0.8):
                values = np.abs(values)
            parts.append(laid_out(values, box.size, layout or str(rng.choice(LAYOUTS))))
        spans.append(Span(parts[0], parts[1], parts[2], int(rng.integers(2))))
    return Case(Blocks(boxes), spans, np.array([a_rule(rng), a_rule(rng)], RULE))


def assert_same(
    case: Case, wanted: NDArray[np.uint64], calls: Mapping[str, Invert], *, nans: bool = True
) -> Inverted:
    """Every call gives what the reference gives; without ``nans``, old bits that are a NaN may be another."""
    new, old, expected = case.run(invert, wanted)
    for name, call in calls.items():
        now, before, found = case.run(call, wanted)
        assert np.array_equal(now, new), name
        unlike = before != old
        if not nans:
            unlike &= ((before & 0x7FFF) <= 0x7F80) | ((old & 0x7FFF) <= 0x7F80)
        assert not unlike.any(), name
        for part in ("digests", "outcomes", "uncertain"):
            assert np.array_equal(getattr(found, part), getattr(expected, part)), (name, part)
    return expected


def moved_to(case: Case, move: Callable[[Floats], Floats]) -> Case:
    """The same case with every array of state moved elsewhere."""
    spans = [
        replace(span, master=move(span.master), mean=move(span.mean), square=move(span.square))
        for span in case.spans
    ]
    return replace(case, spans=spans)


def single(value: float) -> float:
    """Rounded to FP32."""
    return ctypes.c_float(value).value


def plain_quotient(over: float, under: float) -> float:
    if under != 0 or math.isnan(over):
        return single(over / under) if under != 0 else math.nan
    return math.nan if over == 0 else math.copysign(math.inf, over) * math.copysign(1, under)


def plain_interval(
    master: float, mean: float, square: float, rule: dict[str, float]
) -> tuple[float, float, float]:
    """(x - r, x, x + r) in float64, rounded to FP32 after each operation: what FP32 operations give."""
    root = single(math.sqrt(square)) if square >= 0 else math.nan
    scaled = single(single(root * rule["root_scale"]) + rule["eps"])
    update = plain_quotient(single(rule["step_size"] * mean), scaled)
    x = single(single(master + update) * rule["growth"])
    r = single(single(abs(master) * rule["of_value"]) + single(abs(update) * rule["of_update"]))
    r = single(r + rule["floor"])
    return single(x - r), x, single(x + r)


def plain_bf16(value: float) -> int:
    """The nearest BF16 bits of an FP32 value, compared as fractions; of two as near the even; -1 of a NaN."""
    if math.isnan(value):
        return -1
    sign = 0x8000 if math.copysign(1, value) < 0 else 0
    if math.isinf(value):
        return sign | 0x7F80
    below = int(np.float32(abs(value)).view(np.uint32)) >> 16
    low, high = (_magnitude(bits) for bits in (below, below + 1))
    less, more = Fraction(abs(value)) - low, high - Fraction(abs(value))
    return sign | (below if less < more or (less == more and below % 2 == 0) else below + 1)


def _magnitude(bits: int) -> Fraction:
    exponent, rest = bits >> 7, bits & 0x7F
    return Fraction(rest + (128 if exponent else 0)) * Fraction(2) ** (max(exponent, 1) - 134)
