"""The digest: SPEC's words in plain integers, the reference, and both paths of the compiled kernel."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deltastore.errors import InputError
from deltastore.kernels.cpu import Instructions, digest_range
from deltastore.kernels.reference import digest as reference

Bits = np.ndarray[Any, Any]
Digest = Callable[[Bits, int, int], int]

WIDTHS = (8, 16, 32, 64)
MODULUS = 2**64
EMBEDDING_SEED = 0x2AE5039BAC43D4FD
"""The first 8 bytes of sha256(b"model.embed_tokens.weight"), little-endian, made odd."""


def portable_digest_range(bits: Bits, first: int, seed: int) -> int:
    return digest_range(bits, first, seed, instructions=Instructions.PORTABLE)


BACKENDS: dict[str, Digest] = {
    "reference": reference.digest_range,
    "cpu": digest_range,
    "cpu-portable": portable_digest_range,
}
every_backend = pytest.mark.parametrize("digest", BACKENDS.values(), ids=BACKENDS)
every_checked_backend = pytest.mark.parametrize("digest", [reference.digest_range, digest_range])

seeds = st.integers(0, MODULUS // 2 - 1).map(lambda half: 2 * half + 1)
firsts = st.one_of(
    st.integers(0, 3 * 2048),
    st.builds(lambda block, offset: max(0, block * 2048 + offset), st.integers(0, 2**51), st.integers(-3, 3)),
)
FILLS: dict[str, Callable[[np.random.Generator, int, int], Bits]] = {
    "random": lambda rng, width, count: rng.integers(0, 2**width, count, dtype=f"u{width // 8}"),
    "zeros": lambda rng, width, count: np.zeros(count, f"u{width // 8}"),
    "ones": lambda rng, width, count: np.full(count, 2**width - 1, f"u{width // 8}"),
    "top bit": lambda rng, width, count: np.full(count, 2 ** (width - 1), f"u{width // 8}"),
    "edges": lambda rng, width, count: rng.choice(
        np.array([0, 1, 2 ** (width - 1) - 1, 2 ** (width - 1), 2**width - 1], f"u{width // 8}"), count
    ),
}


@st.composite
def elements(draw: st.DrawFn, max_count: int = 3 * 2048 + 5, min_count: int = 0) -> Bits:
    """Elements of any width; counts lean to whole blocks and their neighbours."""
    near_blocks = st.builds(lambda n, d: n * 2048 + d, st.integers(0, 3), st.integers(-2, 2))
    counts = st.one_of(st.integers(min_count, max_count), near_blocks)
    count = min(max(draw(counts), min_count), max_count)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return FILLS[draw(st.sampled_from(sorted(FILLS)))](rng, draw(st.sampled_from(WIDTHS)), count)


def plain_mix(x: int) -> int:
    z = (x + 0x9E3779B97F4A7C15) % MODULUS
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % MODULUS
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % MODULUS
    return z ^ (z >> 31)


def plain_weight(index: int, seed: int) -> int:
    table = plain_mix(0x64656C746173746F + index % 2048) | 1
    return table * (plain_mix(index // 2048) | 1) * seed % MODULUS


def plain_digest(bits: list[int], positions: list[int], seed: int) -> int:
    return sum(bit * plain_weight(at, seed) for bit, at in zip(bits, positions, strict=True)) % MODULUS


def test_mix_is_splitmix64() -> None:
    assert int(reference.mix(np.zeros(1, np.uint64))[0]) == 0xE220A8397B1DCDAF


@pytest.mark.parametrize(
    ("index", "weight"),
    [
        (0, 0x85089B5F59C3947B),
        (1, 0xA8966AE31499413B),
        (2047, 0x65175820B84215C3),
        (2048, 0x9542C6DAC59EC8B5),
        (2**63 - 1, 0xAA91370F3AA18557),
    ],
)
def test_golden_weights(index: int, weight: int) -> None:
    assert reference.weights(index, 1, 1).tolist() == [weight]
    assert reference.weights(index, 1, 12345).tolist() == [weight * 12345 % MODULUS]
    assert reference.position_weights(np.array([[index]], np.uint64)).tolist() == [[weight]]


@every_backend
def test_golden_digests(digest: Digest) -> None:
    across_a_border = np.array([0x3F80, 0xBF80, 0x7FC0, 0x8000], np.uint16)
    assert digest(across_a_border, 2046, EMBEDDING_SEED) == 0xB1DA3733E4BFB8C0
    ramp = ((np.arange(5000, dtype=np.uint64) * 40503 + 7) % 65536).astype(np.uint16)
    assert digest(ramp, 3000, EMBEDDING_SEED) == 0x45C951962879ACB0
    assert digest(np.full(3, 2**8 - 1, np.uint8), 0, 1) == 0x2AA5404E8D3006A9
    assert digest(np.full(3, 2**32 - 1, np.uint32), 0, 1) == 0x5EC14C126CDFAFA9
    assert digest(np.full(3, 2**64 - 1, np.uint64), 0, 1) == 0xCBA0FBBB6CDFAFA9


@given(first=firsts, count=st.integers(0, 5000), seed=seeds)
def test_weights_are_the_specification(first: int, count: int, seed: int) -> None:
    values = reference.weights(first, count, seed)
    assert values.dtype == np.uint64
    assert values.shape == (count,)
    for k in {0, count // 2, count - 1} & set(range(count)):
        assert int(values[k]) == plain_weight(first + k, seed)
        assert int(values[k]) % 2 == 1


@given(bits=elements(max_count=40), first=firsts, seed=seeds)
def test_reference_is_the_specification(bits: Bits, first: int, seed: int) -> None:
    positions = list(range(first, first + bits.size))
    expected = plain_digest(bits.tolist(), positions, seed)
    assert reference.digest_range(bits, first, seed) == expected
    assert reference.digest_at(bits, np.array(positions, np.uint64), seed) == expected


@given(bits=elements(), first=firsts, seed=seeds)
@example(bits=np.zeros(0, np.uint16), first=2**63, seed=1)
@example(bits=np.ones(1, np.uint8), first=2**63 - 1, seed=MODULUS - 1)
@example(bits=np.zeros(2048, np.uint16), first=0, seed=1)
@example(bits=np.full(2048, 0x7FFF, np.uint16), first=2048, seed=1)
def test_compiled_kernel_is_the_reference(bits: Bits, first: int, seed: int) -> None:
    expected = reference.digest_range(bits, first, seed)
    assert 0 <= expected < MODULUS
    assert digest_range(bits, first, seed) == expected
    assert portable_digest_range(bits, first, seed) == expected


@pytest.mark.parametrize("width", WIDTHS)
def test_a_range_longer_than_the_reference_takes_at_once(width: int) -> None:
    bits = FILLS["random"](np.random.default_rng(width), width, 300_001)
    expected = reference.digest_range(bits, 1999, EMBEDDING_SEED)
    assert digest_range(bits, 1999, EMBEDDING_SEED) == expected
    assert portable_digest_range(bits, 1999, EMBEDDING_SEED) == expected


@every_backend
@pytest.mark.parametrize("width", WIDTHS)
def test_memory_at_any_alignment_and_read_only(digest: Digest, width: int) -> None:
    size = width // 8
    bits = FILLS["random"](np.random.default_rng(width), width, 2 * 2048 + 9)
    for shift in range(1, 8):
        moved = np.frombuffer(bytes(shift) + bits.tobytes(), np.dtype(f"u{size}"), offset=shift)
        assert not moved.flags.writeable
        assert digest(moved, 5, 7) == digest(bits, 5, 7)


@every_backend
@given(bits=elements(max_count=5000, min_count=1), first=firsts, seed=seeds, data=st.data())
def test_one_changed_element_always_shows(
    digest: Digest, bits: Bits, first: int, seed: int, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, bits.size - 1))
    flip = data.draw(st.integers(1, int(np.iinfo(bits.dtype).max)))
    changed = bits.copy()
    changed[at] ^= bits.dtype.type(flip)
    assert digest(changed, first, seed) != digest(bits, first, seed)


@every_backend
@given(bits=elements(), first=firsts, seed=seeds, data=st.data())
def test_parts_add_up(digest: Digest, bits: Bits, first: int, seed: int, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, bits.size))
    parts = digest(bits[:cut], first, seed) + digest(bits[cut:], first + cut, seed)
    assert digest(bits, first, seed) == parts % MODULUS


@given(bits=elements(min_count=1), first=firsts, seed=seeds, data=st.data())
def test_sparse_change_is_the_difference(bits: Bits, first: int, seed: int, data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    at = rng.permutation(bits.size)[: data.draw(st.integers(0, bits.size))]
    new = bits.copy()
    new[at] = rng.integers(0, np.iinfo(bits.dtype).max, at.size, dtype=bits.dtype, endpoint=True)
    positions = at.astype(np.uint64) + np.uint64(first)
    sparse = reference.digest_at(new[at], positions, seed) - reference.digest_at(bits[at], positions, seed)
    dense = digest_range(new, first, seed) - digest_range(bits, first, seed)
    assert sparse % MODULUS == dense % MODULUS


def test_a_scattered_digest_longer_than_one_piece() -> None:
    bits = FILLS["random"](np.random.default_rng(3), 16, 40_000)
    positions = np.arange(40_000, dtype=np.uint64)
    assert reference.digest_at(bits[::-1].copy(), positions[::-1].copy(), 9) == digest_range(bits, 0, 9)


def test_threads_digest_at_the_same_time() -> None:
    bits = FILLS["random"](np.random.default_rng(4), 16, 1 << 20)
    expected = reference.digest_range(bits, 0, 11)
    answers: list[int] = []
    threads = [threading.Thread(target=lambda: answers.append(digest_range(bits, 0, 11))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [expected] * 8


@every_checked_backend
@pytest.mark.parametrize("dtype", ["i2", "f4", ">u2", "?", "S2"])
def test_other_dtypes_are_refused(digest: Digest, dtype: str) -> None:
    with pytest.raises(InputError, match="unsigned integers") as caught:
        digest(np.zeros(4, dtype), 0, 1)
    assert caught.value.code == "wrong_dtype"


@every_checked_backend
@pytest.mark.parametrize("bits", [np.zeros(8, "u2")[::2], np.zeros((2, 2), "u2"), np.zeros((), "u2")])
def test_other_memory_is_refused(digest: Digest, bits: Bits) -> None:
    with pytest.raises(InputError, match="contiguous") as caught:
        digest(bits, 0, 1)
    assert caught.value.code == "wrong_memory"


@every_checked_backend
@pytest.mark.parametrize(
    ("first", "seed"),
    [(-1, 1), (2**63 - 1, 1), (2**63, 1), (2**80, 1), (0, 0), (0, 2), (0, -1), (0, 2**64 + 1), (0, 2**64)],
)
def test_indices_and_seeds_out_of_range_are_refused(digest: Digest, first: int, seed: int) -> None:
    with pytest.raises(InputError) as caught:
        digest(np.zeros(2, "u2"), first, seed)
    assert caught.value.code == "bad_argument"


@pytest.mark.parametrize(("first", "count", "seed"), [(0, -1, 1), (-1, 1, 1), (2**63, 1, 1), (0, 1, 2)])
def test_weights_out_of_range_are_refused(first: int, count: int, seed: int) -> None:
    with pytest.raises(InputError) as caught:
        reference.weights(first, count, seed)
    assert caught.value.code == "bad_argument"


@pytest.mark.parametrize(
    ("bits", "positions", "seed", "code"),
    [
        (np.zeros(2, "i2"), np.zeros(2, "u8"), 1, "wrong_dtype"),
        (np.zeros(4, "u2")[::2], np.zeros(2, "u8"), 1, "wrong_memory"),
        (np.zeros(2, "u2"), np.zeros(2, "i8"), 1, "wrong_dtype"),
        (np.zeros(2, "u2"), np.zeros(3, "u8"), 1, "bad_argument"),
        (np.zeros(2, "u2"), np.zeros((2, 1), "u8"), 1, "bad_argument"),
        (np.zeros(2, "u2"), np.array([0, 2**63], "u8"), 1, "bad_argument"),
        (np.zeros(2, "u2"), np.zeros(2, "u8"), 4, "bad_argument"),
    ],
)
def test_scattered_arguments_out_of_range_are_refused(
    bits: Bits, positions: Bits, seed: int, code: str
) -> None:
    with pytest.raises(InputError) as caught:
        reference.digest_at(bits, positions, seed)
    assert caught.value.code == code


@pytest.mark.parametrize("digest", [reference.digest_range, reference.digest_at])
def test_nothing_as_large_as_the_tensor_is_built(digest: Any) -> None:
    bits = np.zeros(1 << 20, np.uint16)
    where = 0 if digest is reference.digest_range else np.arange(bits.size, dtype=np.uint64)
    tracemalloc.start()
    try:
        digest(bits, where, 1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
