"""Weights that hurt, and changes of them: every element type, every density, every special value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from deltastore.format.dtypes import DTYPES, Dtype
from deltastore.format.patch import EncodedPatch, Patch, decode_patch, encode_patch
from deltastore.kernels.reference.changed import changed_positions

from .naive import from_ordered, to_ordered

Bits = np.ndarray[Any, Any]

DENSITIES = {"one element": 0.0, "0.1 %": 0.001, "2 %": 0.02, "30 %": 0.3, "100 %": 1.0}
MOTIONS = ("one step", "small steps", "mixed steps", "hostile", "random", "sign flips")
EXPONENT_BITS = {"F64": 11, "F32": 8, "F16": 5, "BF16": 8}

dtypes = st.sampled_from(sorted(DTYPES.values(), key=lambda dtype: dtype.name))
seeds = st.integers(0, 2**32 - 1)


def special_values(dtype: Dtype) -> Bits:
    """Zeros of both signs, the edges of subnormals, normals and infinity, NaN payloads of both kinds."""
    if dtype.bits == 8:
        return np.arange(256, dtype=dtype.storage)
    top = 1 << (dtype.bits - 1)
    if not dtype.floating:
        return np.array([0, 1, 2, top - 1, top, top + 1, 2 * top - 2, 2 * top - 1], dtype=dtype.storage)
    fraction = dtype.bits - 1 - EXPONENT_BITS[dtype.name]
    one, infinity, quiet = 1 << fraction, top - (1 << fraction), 1 << (fraction - 1)
    positive = [0, 1, 2, one - 1, one, one + 1, infinity - 1, infinity, infinity + 1]
    positive += [infinity + quiet - 1, infinity + quiet, infinity + quiet + 1, top - 1]
    return np.array(positive + [value + top for value in positive], dtype=dtype.storage)


@dataclass(frozen=True)
class Change:
    """The bits of one chunk before and after; ``positions`` are those of the elements that differ."""

    dtype: Dtype
    old: Bits
    new: Bits

    @property
    def positions(self) -> np.ndarray[Any, np.dtype[np.uint32]]:
        return changed_positions(self.old, self.new)

    def encode(self, *, may_be_raw: bool) -> EncodedPatch:
        at = self.positions
        whole = self.new if may_be_raw else None
        return encode_patch(self.dtype, self.old.size, at, self.old[at], self.new[at], whole)

    def decode(self, patch: EncodedPatch) -> Patch:
        return decode_patch(memoryview(patch.data), patch.encoding, self.dtype, self.old.size, "here")


def moved(dtype: Dtype, bits: Bits, motion: str, rng: np.random.Generator) -> Bits:
    """Other bits for each element, by one of ``MOTIONS``; every element does change."""
    if motion in ("hostile", "random"):
        values = special_values(dtype) if motion == "hostile" else None
        new = rng.choice(values, bits.size) if values is not None else random_bits(dtype, bits.size, rng)
        return np.where(new == bits, new ^ dtype.storage.type(1), new).astype(dtype.storage)
    if motion == "sign flips":
        flipped: Bits = bits ^ dtype.storage.type(1 << (dtype.bits - 1))
        return flipped
    reach = {"one step": [1], "small steps": [1, 2, 7, 8], "mixed steps": [1, 7, 8, 9, 120, 127, 128, 129]}
    far = [step for step in (2**15 - 1, 2**15, 2**31 - 1, 2**31) if dtype.bits > 16] or [1]
    steps = rng.choice(reach[motion] + (far if motion == "mixed steps" else []), bits.size)
    steps = np.where(steps >= 2 ** (dtype.bits - 1), 1, steps) * rng.choice([-1, 1], bits.size)
    at = [to_ordered(int(bit), dtype) + int(step) for bit, step in zip(bits, steps, strict=True)]
    return np.array([from_ordered(place % 2**dtype.bits, dtype) for place in at], dtype=dtype.storage)


def random_bits(dtype: Dtype, count: int, rng: np.random.Generator) -> Bits:
    return rng.integers(0, 256, count * dtype.itemsize, dtype=np.uint8).view(dtype.storage)


def make_change(dtype: Dtype, elements: int, density: float, motion: str, rng: np.random.Generator) -> Change:
    """A change of at least one element, of ``density`` of them in the mean, anywhere."""
    old = np.where(
        rng.random(elements) < 0.5,
        random_bits(dtype, elements, rng),
        rng.choice(special_values(dtype), elements),
    ).astype(dtype.storage)
    chosen = rng.random(elements) < density
    chosen[rng.integers(0, elements)] = True
    new = old.copy()
    new[chosen] = moved(dtype, old[chosen], motion, rng)
    return Change(dtype, old, new)


@st.composite
def changes(
    draw: st.DrawFn, dtype: Dtype | None = None, density: float | None = None, most: int = 4000
) -> Change:
    """Any change of a chunk of up to ``most`` elements; sizes lean to one and to whole words."""
    small = st.integers(1, 130)
    elements = draw(st.one_of(small, small, st.integers(131, most)) if most > 130 else st.integers(1, most))
    share = draw(st.sampled_from(sorted(DENSITIES.values()))) if density is None else density
    rng = np.random.default_rng(draw(seeds))
    chosen = draw(dtypes) if dtype is None else dtype
    return make_change(chosen, elements, share, draw(st.sampled_from(MOTIONS)), rng)
