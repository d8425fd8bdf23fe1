"""Digests of chunks, of patches and of whole weights, against the sum in SPEC section 8."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from deltastore.format.digest import MODULUS, Digester, digest_text
from deltastore.format.seeds import tensor_seed
from deltastore.format.table import TensorTable
from deltastore.kernels.reference.digest import mix

from .corpus import random_bits, seeds
from .tables import array, table, tables

Bits = np.ndarray[Any, Any]


def naive_digest(name: str, bits: Bits) -> int:
    """The digest of one tensor in plain integers."""

    def mixed(x: int) -> int:
        return int(mix(np.array([x], dtype=np.uint64))[0])

    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") | 1
    total = 0
    for index, value in enumerate(bits.reshape(-1).tolist()):
        weight = (mixed(0x64656C746173746F + index % 2048) | 1) * (mixed(index // 2048) | 1) * seed
        total += value * weight
    return total % MODULUS


def random_weights(made: TensorTable, seed: int) -> list[Bits]:
    """Bits of every array, members stacked."""
    rng = np.random.default_rng(seed)
    extents = [one.grid.extent for one in made.arrays]
    return [
        random_bits(one.element, int(np.prod(extent)), rng).reshape(extent)
        for one, extent in zip(made.arrays, extents, strict=True)
    ]


@settings(max_examples=100)
@given(made=tables(), seed=seeds)
def test_chunks_add_up_to_the_sum_over_tensors(made: TensorTable, seed: int) -> None:
    weights, digester = random_weights(made, seed), Digester(made)
    total = 0
    for number, one in enumerate(made.arrays):
        for _, box in one.grid.boxes():
            total += digester.chunk(number, box, weights[number][box.slices])
    expected = 0
    for name, (number, member) in made.places.items():
        expected += naive_digest(name, weights[number][member])
    assert total % MODULUS == expected % MODULUS


@settings(max_examples=100)
@given(made=tables(), before=seeds, after=seeds)
def test_a_difference_is_what_the_digest_changes_by(made: TensorTable, before: int, after: int) -> None:
    old, new, digester = random_weights(made, before), random_weights(made, after), Digester(made)
    for number, one in enumerate(made.arrays):
        for _, box in one.grid.boxes():
            sides = [weights[number][box.slices] for weights in (old, new)]
            flat = [np.ascontiguousarray(side).reshape(-1) for side in sides]
            at = np.flatnonzero(flat[0] != flat[1]).astype(np.uint32)
            found = digester.difference(number, box, at, flat[0][at], flat[1][at])
            whole = [digester.chunk(number, box, side) for side in sides]
            assert found == (whole[1] - whole[0]) % MODULUS
            assert 0 <= found < MODULUS


def test_chunks_of_a_tensor_that_crosses_blocks_of_2048() -> None:
    """Rows cut, columns cut, and whole members: all ways to the same number."""
    bits = random_bits(table([array()]).arrays[0].element, 3 * 70 * 90, np.random.default_rng(1))
    weights = bits.reshape(3, 70, 90)
    found = set()
    for chunk in ([3, 70, 90], [1, 70, 90], [2, 7, 90], [1, 1, 90], [3, 13, 11], [2, 70, 89]):
        made = table([array(pattern="w.*", members=[[[0, 3]]], shape=[70, 90], chunk=chunk)])
        digester = Digester(made)
        boxes = [box for _, box in made.arrays[0].grid.boxes()]
        total = sum(digester.chunk(0, box, weights[box.slices]) for box in boxes)
        found.add(total % MODULUS)
    assert len(found) == 1
    expected = sum(naive_digest(f"w.{member}", weights[member]) for member in range(3))
    assert found == {expected % MODULUS}


def test_equal_bits_in_other_tensors_or_places_have_other_digests() -> None:
    made = table([array(pattern="w.*", members=[[[0, 2]]], shape=[4], chunk=[1, 4])])
    digester = Digester(made)
    bits = np.array([[1, 2, 3, 4]], dtype="<u2")
    one, two = (digester.chunk(0, box, bits) for _, box in made.arrays[0].grid.boxes())
    assert one != two
    assert digester.chunk(0, made.arrays[0].grid.box(0), bits[:, ::-1]) != one


@pytest.mark.parametrize("name", ["w", "ä", "a.0", "", "x" * 1024])
def test_seeds_are_odd_and_of_the_name(name: str) -> None:
    seed = tensor_seed(name)
    assert seed % 2 == 1
    assert seed | 1 == int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") | 1


def test_how_a_digest_is_written() -> None:
    assert digest_text(0) == "0" * 16
    assert digest_text(MODULUS - 1) == digest_text(-1) == "f" * 16
    assert digest_text(MODULUS + 255) == "00000000000000ff"
