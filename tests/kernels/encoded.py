"""What encoded patches say, read by the specification's words alone, element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from deltastore.kernels.pieces import KernelTable
from deltastore.kernels.rows import EncodedPatches, Rows
from tests.format import naive

from . import plain
from .models import Tensors

Written = dict[tuple[int, int, tuple[int, ...]], tuple[int, int]]
"""(width, residue) of each element that patches write, by (array, member, place in the tensor)."""


def same(first: EncodedPatches, second: EncodedPatches) -> bool:
    """Equal to the byte."""
    parts = ("rows", "body", "changed")
    return all(
        getattr(first, part).dtype == getattr(second, part).dtype
        and getattr(first, part).tobytes() == getattr(second, part).tobytes()
        for part in parts
    )


def written(table: KernelTable, rows: Rows, body: np.ndarray[Any, Any]) -> Written:
    """Every element of all patches. Raises ``naive.RefusedError`` where a patch breaks a rule."""
    found: Written = {}
    at = 0
    for row in rows.tolist():
        array, chunk, length, count, encoding, *_ = row
        form = table.arrays[array]
        start, size = plain.chunk_box(form.grid.extent, form.grid.chunk, chunk)
        patch = naive.decode(body[at : at + length].tobytes(), encoding, form, int(np.prod(size)))
        at += length
        if len(patch) != count:
            raise naive.RefusedError
        for position, residue in patch.items():
            member, place, _ = plain.element_of(form.grid.extent, start, size, position)
            found[array, member, place] = residue
    assert at == len(body)
    return found


def applied(table: KernelTable, changes: Written, tensors: Tensors) -> Tensors:
    """The tensors after the patches; refuses an offset of -2**(w-1)."""
    result = {key: bits.copy() for key, bits in tensors.items()}
    for (array, member, place), entry in changes.items():
        bits = result[array, member]
        new = naive.apply({0: entry}, table.arrays[array], [int(bits[place])])
        bits[place] = new[0]
    return result


def differences(table: KernelTable, rows: Rows, before: Tensors, after: Tensors) -> list[int]:
    """The digest difference of each row's chunk, summed over all of the chunk's elements that differ."""
    sums = []
    for array, chunk in zip(rows["array"].tolist(), rows["chunk"].tolist(), strict=True):
        extent, steps = table.arrays[array].grid.extent, table.arrays[array].grid.chunk
        start, size = plain.chunk_box(extent, steps, chunk)
        seeds = table.seeds(array).tolist()
        total = 0
        for position in range(int(np.prod(size))):
            member, place, flat = plain.element_of(extent, start, size, position)
            old, new = int(before[array, member][place]), int(after[array, member][place])
            if old != new:
                total += (new - old) * plain.weight(flat, seeds[member])
        sums.append(total % plain.MODULUS)
    return sums
