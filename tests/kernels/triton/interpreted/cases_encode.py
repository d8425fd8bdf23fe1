"""Encoding kernels against the reference, byte for byte, in Triton's interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from deltastore.errors import InputError
from deltastore.kernels.pieces import Pieces
from deltastore.kernels.reference.encode import encode_changed as reference
from deltastore.kernels.rows import Encoding, chunk_list
from deltastore.kernels.triton import encode_changed
from tests.kernels.triton.interpreted.models import (
    FORMS,
    Model,
    Shape,
    all_chunks,
    changed_weights,
    model_of,
    random_weights,
    table_of,
)

COVERING = ("plain", "transposed", "strided", "columns")


def models(
    table_seed: int, density: float, new_forms: tuple[str, ...], old_forms: tuple[str, ...] = COVERING
) -> tuple[Model, Model]:
    table = table_of()
    before = random_weights(table, table_seed)
    after = changed_weights(table, before, table_seed + 100, density)
    return model_of(table, 1, new_forms, after), model_of(table, 2, old_forms, before)


@pytest.mark.parametrize(
    ("seed", "density", "forms", "batch"),
    [(0, 0.03, FORMS, 7), (1, 0.3, COVERING, 2048), (2, 1.0, FORMS, 1), (3, 0.001, ("plain",), 2048)],
)
def test_patches_are_those_of_the_reference(
    seed: int, density: float, forms: tuple[str, ...], batch: int
) -> None:
    new, old = models(seed, density, forms, (*COVERING, "twice"))
    chunks = np.random.default_rng(seed).permutation(all_chunks(new.on_host.table))
    if density > 0.1:
        chunks = chunks[::2]
    expected = reference(new.on_host, old.on_host, chunks)
    found = encode_changed(new.on_device, old.on_device, chunks, batch_tasks=batch)
    assert found.rows.tobytes() == expected.rows.tobytes()
    assert found.body.tobytes() == expected.body.tobytes()
    assert found.changed.tolist() == expected.changed.tolist()
    assert len(expected.rows) > 8


def test_a_chunk_of_several_tasks_and_lists_longer_than_one_load() -> None:
    table = table_of((Shape((1, 130, 70), (1, 130, 70), 2),))
    before = random_weights(table, 0)
    after = changed_weights(table, before, 1, 0.08)
    new, old = (model_of(table, 0, ("plain",), weights) for weights in (after, before))
    chunks = all_chunks(table)
    expected = reference(new.on_host, old.on_host, chunks)
    assert expected.rows["count"][0] > 600
    assert expected.rows["encoding"][0] == Encoding.RUNS
    found = encode_changed(new.on_device, old.on_device, chunks)
    assert found.rows.tobytes() == expected.rows.tobytes()
    assert found.body.tobytes() == expected.body.tobytes()


def test_the_same_weights_make_no_patches() -> None:
    new, old = models(4, 0.0, ("plain",), ("plain",))
    found = encode_changed(new.on_device, old.on_device, all_chunks(new.on_host.table))
    assert len(found.rows) == len(found.body) == len(found.changed) == 0


def test_an_element_in_two_pieces_is_refused() -> None:
    new, old = models(5, 0.03, ("twice",))
    chunks = all_chunks(new.on_host.table)
    with pytest.raises(InputError, match="two pieces") as expected:
        reference(new.on_host, old.on_host, chunks)
    with pytest.raises(InputError, match="two pieces") as found:
        encode_changed(new.on_device, old.on_device, chunks)
    assert str(found.value) == str(expected.value)


def test_old_weights_that_lack_a_part_are_refused() -> None:
    new, old = models(6, 0.03, ("plain",))
    pieces = [piece for piece in old.on_device.pieces if (piece.array, piece.member) != (1, 2)]
    fewer = Pieces(old.on_device.table, pieces)
    with pytest.raises(InputError, match="array 1: the old weights lack") as found:
        encode_changed(new.on_device, fewer, all_chunks(new.on_host.table)[:14])
    assert found.value.code == "wrong_memory"


def test_a_chunk_that_is_not_of_the_table_is_refused() -> None:
    new, old = models(6, 0.03, ("plain",))
    with pytest.raises(InputError, match="no chunk 4 of array 0"):
        encode_changed(new.on_device, old.on_device, chunk_list([0], [4]))


def test_the_first_of_two_old_pieces_says_what_was() -> None:
    table = table_of((Shape((1, 6, 50), (1, 6, 50), 2),))
    before = random_weights(table, 1)
    old = model_of(table, 0, ("twice",), before)
    second = old.on_host.of(0, 0)[1]
    second.view[...] ^= 0x11
    new = model_of(table, 0, ("plain",), changed_weights(table, before, 2, 0.2))
    chunks = all_chunks(table)
    expected = reference(new.on_host, old.on_host, chunks)
    found = encode_changed(new.on_device, old.on_device, chunks)
    assert found.rows.tobytes() == expected.rows.tobytes()
    assert found.body.tobytes() == expected.body.tobytes()
