"""Windows: every chunk once and in order, within their limits, and no shard cut without need."""

from __future__ import annotations

import numpy as np
import pytest

from deltastore.anchors.sharding import ShardGrid, plan_shards
from deltastore.kernels.rows import chunk_list, places_of
from deltastore.layout.batches import chunks_in_order
from deltastore.windows import cutting
from deltastore.windows.cutting import windows_of
from tests.doubles.models import cut_table, every_dtype, small_model


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("nbytes", [1, 40, 200, 1 << 20])
def test_all_chunks_or_some(seed: int, nbytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(seed)
    monkeypatch.setattr(cutting, "PIECES", int(random.integers(1, 20)))
    table = cut_table(
        every_dtype() if seed % 3 == 0 else small_model(), int(random.integers(1, 40)), seed % 2
    )
    grids = [
        plan_shards(array, int(random.integers(1, 300)))
        if random.random() < 0.5
        else ShardGrid(array.grid, tuple(int(random.integers(1, 4)) for _ in array.chunk))
        for array in table.arrays
    ]
    every = chunks_in_order(table)
    chosen = None if seed % 2 else random.permutation(every)[: int(random.integers(0, len(every) + 1))]
    windows = windows_of(table, grids, chosen, nbytes)
    together = np.concatenate([chunk_list([], []), *(window.chunks for window in windows)])
    wanted = np.sort(places_of(every if chosen is None else chosen))
    assert np.array_equal(places_of(together), wanted)
    for window in windows:
        boxes = [table.arrays[array].grid.box(chunk) for array, chunk in window.chunks.tolist()]
        sizes = [
            box.elements * table.arrays[array].element.itemsize
            for box, array in zip(boxes, window.chunks["array"].tolist(), strict=True)
        ]
        assert window.nbytes == sum(sizes)
        assert window.last == int(places_of(window.chunks)[-1])
        small = window.nbytes <= nbytes and sum(box.size[0] for box in boxes) <= cutting.PIECES
        assert small or len(window.chunks) == 1


def test_a_shard_that_fits_is_not_cut() -> None:
    table = cut_table({"w": np.zeros((64, 8), np.uint16)}, 8)
    grids = [ShardGrid(table.arrays[0].grid, (1, 6, 1))]
    chunk = 16
    for shards in (1, 2, 3):
        windows = windows_of(table, grids, None, (6 * shards + 5) * chunk)
        assert [len(window.chunks) % 6 for window in windows[:-1]] == [0] * (len(windows) - 1)
    assert [len(window.chunks) for window in windows_of(table, grids, None, 4 * chunk)][:4] == [4, 2, 4, 2]
