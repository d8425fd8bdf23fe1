"""Residues at the edge of their width: the last that fit, and the one that says that weights are foreign."""

from __future__ import annotations

import numpy as np
import pytest

from deltastore.errors import PatchError
from deltastore.kernels.grid import ChunkGrid
from deltastore.kernels.pieces import GridArray
from deltastore.kernels.rows import REASONS
from tests.format import naive

from .backends import Kernels, each_backend
from .forging import ForgedRun, pack, runs_patch
from .memory import filled
from .models import hostile_bits, table_of


@each_backend
@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("width", [2, 4, 8, 16, 32])
@pytest.mark.parametrize("floating", [True, False])
def test_every_offset_around_the_edge_of_a_width(
    kernels: Kernels, bits: int, width: int, floating: bool
) -> None:
    """Up to 2**(w-1) - 1 either way moves an element; -2**(w-1) is refused before anything is written."""
    if width >= bits:
        return
    rng = np.random.default_rng(bits * width)
    array = GridArray(ChunkGrid((1, 64), (1, 64)), bits // 8, floating)
    table = table_of(array)
    half = 1 << (width - 1)
    current = hostile_bits(array, 64, rng)
    places = [naive.to_ordered(int(bit), array) for bit in current]
    for d in sorted({-half, -half + 1, -1, 0, 1, half - 1}):
        residues = [(place + d) % 2**width for place in places]
        others = [(place + d // 2) % 2**width for place in places[:5]]
        rows, body = pack([(0, 0, 64, 0, runs_patch(64, [ForgedRun(width, 3, range(64), residues)]))])
        memory = filled(table, {(0, 0): current}, rng, ("whole",))
        if d == -half:
            some, mixed = pack([(0, 0, 6, 0, _mixed(width, others, residues[63]))])
            for refused in ((rows, body), (some, mixed)):
                with pytest.raises(PatchError) as caught:
                    kernels.apply(memory.pieces, *refused)
                assert (caught.value.row, caught.value.reason) == (0, REASONS[14])
                with pytest.raises(PatchError, match="patch 0"):
                    kernels.resolve(memory.pieces, *refused, None)
            result = current
        else:
            result = np.array([naive.from_ordered((at + d) % 2**bits, array) for at in places], array.storage)
            kernels.apply(memory.pieces, rows, body)
        assert memory.arena.tobytes() == memory.filled({(0, 0): result}).arena.tobytes()


def _mixed(width: int, residues: list[int], last: int) -> bytes:
    """Five elements that fit, and the chunk's last one, which may not."""
    return runs_patch(64, [ForgedRun(width, 2, [0, 1, 2, 3, 4, 63], [*residues, last])])
