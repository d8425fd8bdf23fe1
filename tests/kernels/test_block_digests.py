"""Digests of blocks: SPEC's words in plain integers, the reference, the compiled kernel in all its forms."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltastore.errors import InputError
from deltastore.kernels.blocks import BLOCK, Blocks, BoxOf
from deltastore.kernels.reference.block_digests import digest_blocks

from .fences import fenced
from .inverting import DIGEST, SHAPES, Digest
from .test_digest import FILLS, MODULUS, WIDTHS, plain_weight

EVERY: dict[str, Digest] = {"reference": digest_blocks, **DIGEST}
every_backend = pytest.mark.parametrize("call", EVERY.values(), ids=EVERY)


def plain_digests(boxes: tuple[BoxOf, ...], bits: list[int]) -> list[int]:
    """Element by element, by its place in its tensor."""
    digests: list[int] = []
    rest = iter(bits)
    for box in boxes:
        ranges = [range(low, low + length) for low, length in zip(box.lo, box.size, strict=True)]
        for number, place in enumerate(itertools.product(*ranges)):
            if number % BLOCK == 0:
                digests.append(0)
            flat = 0
            for whole, at in zip(box.shape, place, strict=True):
                flat = flat * whole + at
            digests[-1] = (digests[-1] + next(rest) * plain_weight(flat, box.seed)) % MODULUS
    return digests


def bits_for(blocks: Blocks, width: int, fill: str, seed: int) -> np.ndarray[Any, Any]:
    return FILLS[fill](np.random.default_rng(seed), width, blocks.elements)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_reference_is_specs_sum(width: int) -> None:
    blocks = Blocks(SHAPES)
    bits = bits_for(blocks, width, "random", width)
    assert digest_blocks(blocks, bits).tolist() == plain_digests(SHAPES, bits.tolist())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("fill", FILLS)
def test_every_form_gives_the_references_digests(width: int, fill: str) -> None:
    blocks = Blocks(SHAPES)
    bits = bits_for(blocks, width, fill, 1)
    expected = digest_blocks(blocks, bits).tolist()
    for name, call in DIGEST.items():
        assert call(blocks, bits).tolist() == expected, name


@pytest.mark.parametrize("behind", [True, False])
@pytest.mark.parametrize("fill", ["random", "ones", "top bit"])
def test_parts_of_a_block_of_positions(fill: str, behind: bool) -> None:
    """Every length around a vector, from places that no vector starts at, and over the positions' end."""
    for elements, first in itertools.product((*range(1, 70), 2047, 2048, 2049), (0, 1, 31, 1000, 2040, 2047)):
        blocks = Blocks([BoxOf((8000,), (first,), (elements,), 2**64 - 1)])
        bits = bits_for(blocks, 16, fill, elements)
        held = fenced(bits, behind=behind)
        expected = digest_blocks(blocks, bits).tolist()
        for name, call in DIGEST.items():
            assert call(blocks, held).tolist() == expected, (name, elements, first)


@every_backend
def test_what_comes_after_the_elements_is_not_looked_at(call: Digest) -> None:
    blocks = Blocks([BoxOf((9,), (2,), (5,), 3)])
    bits = np.arange(9, dtype=np.uint16)
    assert call(blocks, bits).tolist() == call(blocks, bits[:5]).tolist()
    assert call(Blocks([]), bits).tolist() == []


@every_backend
def test_blocks_of_a_tensor_add_up(call: Digest) -> None:
    whole = Blocks([BoxOf((40, 700), (0, 0), (40, 700), 77)])
    bits = bits_for(whole, 16, "random", 3)
    parts = Blocks([BoxOf((40, 700), (row, 0), (8, 700), 77) for row in range(0, 40, 8)])
    assert call(whole, bits).sum(dtype=np.uint64) == call(parts, bits).sum(dtype=np.uint64)


@settings(max_examples=60)
@given(
    shape=st.lists(st.integers(1, 30), min_size=1, max_size=3).map(tuple),
    cuts=st.tuples(*[st.tuples(st.integers(0, 29), st.integers(1, 30))] * 3),
    count=st.integers(1, 3),
    width=st.sampled_from(WIDTHS),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_boxes(
    shape: tuple[int, ...], cuts: tuple[tuple[int, int], ...], count: int, width: int, seed: int
) -> None:
    lo = tuple(min(low, whole - 1) for whole, (low, _) in zip(shape, cuts, strict=False))
    size = tuple(min(cut[1], whole - low) for whole, low, cut in zip(shape, lo, cuts, strict=False))
    boxes = (BoxOf(shape, lo, size, 2 * seed + 1),) * count
    blocks = Blocks(boxes)
    bits = bits_for(blocks, width, "random", seed)
    expected = plain_digests(boxes, bits.tolist())
    for name, call in EVERY.items():
        assert call(blocks, bits).tolist() == expected, name


@every_backend
@pytest.mark.parametrize(
    "bits",
    [
        np.zeros(5, np.uint16),
        np.zeros(12, np.uint16)[::2],
        np.zeros((2, 3), np.uint16),
        np.zeros(6, np.int16),
        np.zeros(6, np.float32),
    ],
)
def test_buffers_that_are_refused(call: Digest, bits: np.ndarray[Any, Any]) -> None:
    with pytest.raises(InputError) as caught:
        call(Blocks([BoxOf((6,), (0,), (6,), 1)]), bits)
    assert caught.value.code == "wrong_memory"
