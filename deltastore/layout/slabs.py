"""The aligned grid: chunks and slabs that follow how engines cut a model (SPEC section "Chunk grid").

With n slabs, every tensor-parallel degree that divides n, and every expert-parallel one where experts stay
whole, reads whole chunks: of its own slabs, of the common one, and of that with the KV head that it shares.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from deltastore.errors import InputError
from deltastore.format.limits import CHUNK_ELEMENTS, SLABS
from deltastore.format.names import MemberBox, join_name
from deltastore.format.table import SlabRule, TensorSpec, TensorTable, stack_tensors
from deltastore.layout.cuts import Cut, Experts, cuts_of
from deltastore.layout.cutting import array_of, plain_chunk, plain_table, table_of
from deltastore.layout.model import Model

__all__ = ["SMALL_CHUNK", "slab_table"]

SMALL_CHUNK: Final = 1 << 18
"""Elements of a chunk below which its index row costs more than cutting it off saves."""

Needed = Mapping[str, tuple[TensorSpec, Cut]]


def slab_table(
    model: Model, tensors: Iterable[TensorSpec], *, slabs: int, moe: Experts = "ep"
) -> TensorTable:
    """The table of a checkpoint under the aligned grid of ``slabs`` slabs; with 0, under the plain grid.

    ``tensors``: the checkpoint's, whose element types count. ``moe``: for which readers experts are cut.
    Raises ``InputError``: ``unknown_tensor``, ``missing_tensor`` or ``wrong_shape`` for a checkpoint that is
    not one of ``model``, and ``bad_argument``.
    """
    if not isinstance(slabs, int) or isinstance(slabs, bool) or not 0 <= slabs <= SLABS:
        raise InputError("bad_argument", f"slabs is an integer from 0 to {SLABS}, not {slabs!r}")
    if moe not in ("ep", "tp"):
        raise InputError("bad_argument", f"moe is 'ep' or 'tp', not {moe!r}")
    given = tuple(tensors)
    cuts = cuts_of(model, max(slabs, 1), moe)
    _check_given(model, given, cuts)
    if slabs == 0:
        return plain_table(given)
    arrays = []
    for pattern, spec, members in stack_tensors(given):
        cut = _cut_of(pattern, members, cuts)
        count = sum(math.prod(high - low for low, high in box) for box in members)
        rule = SlabRule(
            by=cut.by,
            of={"common": 0, "axis": 1 + cut.axis, "member": len(members[0]) - 1}[cut.by],
            count=cut.experts if cut.by == "member" else 0,
        )
        arrays.append(array_of(pattern, spec, members, _chunk(spec.shape, cut, count, members), rule))
    return table_of(arrays, slabs)


def _check_given(model: Model, given: tuple[TensorSpec, ...], cuts: Needed) -> None:
    missing = {spec.name: spec for spec in model.tensors()}
    for tensor in given:
        missing.pop(tensor.name, None)
        if tensor.name in cuts:
            wanted = cuts[tensor.name][0].shape
            if tensor.shape != wanted:
                raise InputError(
                    "wrong_shape",
                    f"tensor {tensor.name!r} has shape {list(tensor.shape)} where the configuration, of a "
                    f"{model.architecture} model, gives {list(wanted)}",
                    where=tensor.name,
                )
        elif not tensor.name.startswith(model.unheld):
            raise InputError(
                "unknown_tensor",
                f"tensor {tensor.name!r} is not one of the {model.architecture} model that the "
                "configuration describes",
                where=tensor.name,
            )
    for name, spec in missing.items():
        raise InputError(
            "missing_tensor",
            f"tensor {name!r} of shape {list(spec.shape)} is not there; {len(missing)} of the "
            f"{model.architecture} model that the configuration describes are missing",
            where=name,
        )


def _cut_of(pattern: str, members: tuple[MemberBox, ...], cuts: Needed) -> Cut:
    """The cut of an array. Members that no engine holds take that of the others."""
    for box in members:
        low = tuple(low for low, _ in box)
        if (name := join_name(pattern, low)) in cuts:
            return cuts[name][1]
    return Cut()


def _chunk(shape: tuple[int, ...], cut: Cut, count: int, members: tuple[MemberBox, ...]) -> tuple[int, ...]:
    """Extent of a chunk over (member, tensor axes)."""
    if cut.by == "member":
        return (1, *plain_chunk(shape))
    if cut.cell == 0:
        return plain_chunk((count, *shape))
    inner = _in_cell((shape[0], shape[1]), cut)
    size = math.prod(inner)
    if size >= SMALL_CHUNK:
        return (1, *inner)
    if cut.experts == 0:
        return (_together(count, size), *inner)
    whole_layers = all(box[-1] == (0, cut.experts) for box in members)
    return (_dividing(cut.experts, size) if whole_layers else 1, *inner)


def _in_cell(shape: tuple[int, int], cut: Cut) -> tuple[int, int]:
    """A chunk of a matrix: cells are whole multiples of it along the axis of the cells.

    Whole rows of the cell if they make a chunk that is not small; else the longest rows that do; and of all
    such the fewest chunks.
    """
    best: tuple[bool, bool, int, int] | None = None
    found = (1, 1)
    width = cut.cell if cut.axis == 1 else shape[1]
    for along in _divisors(cut.cell):
        if along > CHUNK_ELEMENTS or (along <= cut.padding and best is not None):
            continue
        other = shape[1 - cut.axis]
        across = _parts(other, CHUNK_ELEMENTS // along)
        rows, columns = (min(along, shape[0]), across) if cut.axis == 0 else (across, along)
        chunks = cut.cell // along * -(-other // across)
        small = rows * columns < SMALL_CHUNK and chunks > 1
        score = (small or columns < width, small, chunks if small else -columns, chunks)
        if best is None or score < best:
            best, found = score, (rows, columns)
    return found


def _parts(length: int, most: int) -> int:
    """Length of the parts when ``length`` is cut into the fewest nearly equal ones of at most ``most``."""
    return -(-length // -(-length // most))


def _together(count: int, size: int) -> int:
    """How many of ``count`` members of ``size`` elements share a chunk so that it is not small."""
    many = _dividing(count, size)
    return many if many * size >= SMALL_CHUNK else _parts(count, -(-SMALL_CHUNK // size))


def _dividing(count: int, size: int) -> int:
    """The least divisor of ``count`` with which a chunk is not small; else the largest that fits."""
    fitting = [many for many in _divisors(count) if many * size <= CHUNK_ELEMENTS]
    return next((many for many in reversed(fitting) if many * size >= SMALL_CHUNK), fitting[0])


def _divisors(number: int) -> Iterator[int]:
    """Descending."""
    small = [one for one in range(1, math.isqrt(number) + 1) if number % one == 0]
    yield from (number // one for one in small)
    yield from (one for one in reversed(small) if one * one != number)
