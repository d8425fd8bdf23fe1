"""The digest kernels against the reference, in Triton's interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from deltastore.errors import InputError
from deltastore.kernels.reference.digest import digest_chunks as reference
from deltastore.kernels.rows import chunk_list
from deltastore.kernels.triton import digest_chunks
from tests.kernels.triton.interpreted.models import (
    FORMS,
    Shape,
    all_chunks,
    model_of,
    random_weights,
    table_of,
)


@pytest.mark.parametrize(("seed", "forms"), [(0, ("plain",)), (1, FORMS), (2, ("twice", "columns"))])
def test_chunks_have_the_digests_of_the_reference(seed: int, forms: tuple[str, ...]) -> None:
    table = table_of()
    model = model_of(table, seed, forms, random_weights(table, seed))
    chunks = np.random.default_rng(seed).permutation(all_chunks(table))[: 36 // (seed + 1)]
    expected = reference(model.on_host, chunks)
    assert digest_chunks(model.on_device, chunks).tolist() == expected.tolist()
    assert np.count_nonzero(expected) > len(chunks) // 2


def test_blocks_that_begin_before_the_chunk_and_end_after_it() -> None:
    table = table_of((Shape((1, 57, 1000), (1, 19, 1000), 2), Shape((1, 57, 999), (1, 19, 999), 1)))
    model = model_of(table, 3, ("plain",), random_weights(table, 3))
    chunks = all_chunks(table)
    assert digest_chunks(model.on_device, chunks).tolist() == reference(model.on_host, chunks).tolist()


def test_a_chunk_that_is_not_of_the_table_is_refused() -> None:
    table = table_of()
    model = model_of(table, 0, ("plain",), random_weights(table, 0))
    for array, chunk in ((0, 4), (len(table.arrays), 0), (8, 0), (2**32 - 1, 2**32 - 1)):
        with pytest.raises(InputError, match="no chunk"):
            digest_chunks(model.on_device, chunk_list([array], [chunk]))


def test_no_chunks_have_no_digests() -> None:
    table = table_of()
    model = model_of(table, 0, ("plain",), random_weights(table, 0))
    assert digest_chunks(model.on_device, all_chunks(table)[:0]).tolist() == []
