"""Which packs may share chunks, and which elements were written twice; against looking at each."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from deltastore.kernels.rows import StagedBits, chunk_list
from deltastore.windows.sharing import Ends, Written, reaching_over
from tests.doubles.models import cut_table, tiny_model


@pytest.mark.parametrize("seed", range(20))
def test_packs_that_reach_over_each_other_are_in_one_group(seed: int) -> None:
    chance = random.Random(seed)
    packs: list[Ends] = []
    for _ in range(chance.randint(0, 12)):
        low, high = sorted((chance.randint(0, 3), chance.randint(0, 9)) for _ in range(2))
        packs.append((low, high))
    groups = reaching_over(packs)
    of = {number: at for at, group in enumerate(groups) for number in group}
    assert len(of) == sum(map(len, groups))
    for one, other in itertools.combinations(range(len(packs)), 2):
        if packs[one][0] <= packs[other][1] and packs[other][0] <= packs[one][1]:
            assert of[one] == of[other]
    for group in groups:
        assert len(group) > 1


@pytest.mark.parametrize("seed", range(20))
def test_an_element_written_twice(seed: int) -> None:
    random = np.random.default_rng(seed)
    table = cut_table(tiny_model(), 16)
    order = [(array, chunk) for _, array, chunk in table.chunk_order().tolist()][:5]
    written, seen = Written(table), set[tuple[int, int, int]]()
    for pack in range(8):
        step = pack // 4
        if pack % 4 == 0:
            seen.clear()
        chosen = [order[at] for at in sorted(random.permutation(len(order))[: random.integers(1, 5)])]
        sizes = [table.arrays[array].grid.box(chunk).elements for array, chunk in chosen]
        parts = [np.flatnonzero(random.random(size) < 0.03).astype(np.uint32) for size in sizes]
        again = [
            number
            for number, (place, part) in enumerate(zip(chosen, parts, strict=True))
            if any((*place, at) in seen for at in part.tolist())
        ]
        starts = np.cumsum([0, *map(len, parts)])
        chunks = chunk_list([array for array, _ in chosen], [chunk for _, chunk in chosen])
        offsets = np.zeros(len(starts), np.int64)
        staged = StagedBits(chunks, starts, np.concatenate(parts), offsets, np.zeros(0, np.uint8))
        assert written.add(step, staged) == (again[0] if again else None)
        if again:
            return  # nothing more of this step is applied
        seen.update((*place, at) for place, part in zip(chosen, parts, strict=True) for at in part.tolist())
