"""Elias-Fano positions against their definition in one big integer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deltastore.kernels.reference.elias_fano import (
    best_low_bits,
    decode_positions,
    encode_positions,
    high_bits,
    positions_bytes,
)

Positions = list[int]


def words(bits: int) -> int:
    return (bits + 31) // 32 * 4


def naive_sections(positions: Positions, universe: int, low_bits: int) -> bytes:
    low = sum((place % (1 << low_bits)) << (i * low_bits) for i, place in enumerate(positions))
    high = sum(1 << ((place >> low_bits) + i) for i, place in enumerate(positions))
    length = len(positions) + ((universe - 1) >> low_bits)
    return low.to_bytes(words(len(positions) * low_bits), "little") + high.to_bytes(words(length), "little")


def naive_positions(sections: bytes, count: int, universe: int, low_bits: int) -> Positions | None:
    """What a section says, or None where it breaks a rule."""
    cut, length = words(count * low_bits), count + ((universe - 1) >> low_bits)
    low, high = (int.from_bytes(part, "little") for part in (sections[:cut], sections[cut:]))
    ones = [bit for bit in range(8 * len(sections)) if high >> bit & 1]
    if len(sections) != cut + words(length) or low >> (count * low_bits) or high >> length:
        return None
    if len(ones) != count:
        return None
    mask = 2**low_bits - 1
    places = [(one - i) << low_bits | low >> (i * low_bits) & mask for i, one in enumerate(ones)]
    return places if places == sorted(set(places)) and places[-1] < universe else None


def octets(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(data, dtype=np.uint8)


@st.composite
def position_sets(draw: st.DrawFn) -> tuple[Positions, int]:
    """Positions and their universe: sparse, dense, all, the first, the last."""
    universe = draw(st.one_of(st.integers(1, 130), st.integers(131, 2000)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    chosen = rng.random(universe) < draw(st.sampled_from([0.0, 0.01, 0.3, 1.0]))
    chosen[draw(st.sampled_from([0, universe - 1, universe // 2]))] = True
    return np.flatnonzero(chosen).tolist(), universe


@settings(max_examples=300)
@given(drawn=position_sets(), low_bits=st.integers(0, 19))
@example(drawn=([0], 1), low_bits=0)
@example(drawn=([0, 2**20 - 1], 2**20), low_bits=19)
def test_coding_is_the_specification_and_decoding_its_inverse(
    drawn: tuple[Positions, int], low_bits: int
) -> None:
    positions, universe = drawn
    coded = encode_positions(np.array(positions, dtype=np.uint32), universe, low_bits)
    assert coded == naive_sections(positions, universe, low_bits)
    assert len(coded) == positions_bytes(len(positions), universe, low_bits)
    assert high_bits(len(positions), universe, low_bits) == len(positions) + ((universe - 1) >> low_bits)
    back = decode_positions(octets(coded), len(positions), universe, low_bits)
    assert back.dtype == np.uint32
    assert back.tolist() == positions


@settings(max_examples=600)
@given(
    universe=st.integers(1, 70),
    count=st.integers(1, 8),
    low_bits=st.integers(0, 6),
    ones=st.sets(st.integers(0, 90), max_size=9),
    low=st.integers(0, 2**48 - 1),
)
@example(universe=1, count=1, low_bits=0, ones={0}, low=0)
@example(universe=4, count=4, low_bits=1, ones={0, 1, 3, 4}, low=0b1010)
@example(universe=5, count=1, low_bits=2, ones={1}, low=1)
def test_any_sections_are_read_as_the_specification_says_or_refused(
    universe: int, count: int, low_bits: int, ones: set[int], low: int
) -> None:
    high = sum(1 << one for one in ones)
    length = words(count + ((universe - 1) >> low_bits))
    low %= 2 ** (8 * words(count * low_bits))
    high %= 2 ** (8 * length)
    sections = low.to_bytes(words(count * low_bits), "little") + high.to_bytes(length, "little")
    expected = naive_positions(sections, count, universe, low_bits)
    if expected is None:
        with pytest.raises(ValueError, match=r"position|unused bit"):
            decode_positions(octets(sections), count, universe, low_bits)
    else:
        assert decode_positions(octets(sections), count, universe, low_bits).tolist() == expected


@settings(max_examples=200)
@given(drawn=position_sets(), low_bits=st.integers(0, 8), more=st.integers(-8, 8))
def test_sections_of_another_length(drawn: tuple[Positions, int], low_bits: int, more: int) -> None:
    positions, universe = drawn
    coded = encode_positions(np.array(positions, dtype=np.uint32), universe, low_bits)
    other = coded + bytes(more) if more > 0 else coded[: len(coded) + more]
    if len(other) == len(coded):
        return
    with pytest.raises(ValueError, match=r"position|unused bit|cut short"):
        decode_positions(octets(other), len(positions), universe, low_bits)


@pytest.mark.parametrize("universe", [*range(1, 70), 100, 255, 256, 1000, 2**16, 700_000, 2**20 - 1, 2**20])
def test_the_chosen_low_bits_are_within_a_word_of_the_best(universe: int) -> None:
    counts = set(range(1, min(universe, 40) + 1))
    counts |= {max(universe // part, 1) for part in (1, 2, 3, 7, 50, 51, 100, 1000)}
    for count in counts:
        low_bits = best_low_bits(count, universe)
        assert 0 <= low_bits <= 19
        best = min(positions_bytes(count, universe, other) for other in range(20))
        assert best <= positions_bytes(count, universe, low_bits) <= best + 4


def test_all_positions_that_fit_one_word_take_one_word() -> None:
    for universe in range(1, 33):
        assert positions_bytes(1, universe, best_low_bits(1, universe)) == 4


@pytest.mark.parametrize("density", [0.001, 0.01, 0.02, 0.1])
def test_size_is_near_the_entropy(density: float) -> None:
    """Half a bit a position above the limit of information, and the two words' padding."""
    universe = 2**20
    count = int(universe * density)
    entropy = universe * -(density * np.log2(density) + (1 - density) * np.log2(1 - density))
    bits = 8 * positions_bytes(count, universe, best_low_bits(count, universe))
    assert entropy < bits < entropy + 0.6 * count + 64
