"""Choosing chunk grids: the plain grid, which knows sizes only (SPEC section "Chunk grid").

Whole tensors are stacked while they are small; large ones are cut into chunks of whole rows; rows that are
too long are cut too. Chunks of one tensor come out nearly equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic import ValidationError

from deltastore.errors import InputError
from deltastore.format.limits import CHUNK_ELEMENTS, TABLE_BYTES
from deltastore.format.names import MemberBox
from deltastore.format.sealed import first_problem
from deltastore.format.table import Array, SlabRule, TensorSpec, TensorTable, array_order, stack_tensors

__all__ = ["array_of", "plain_chunk", "plain_table", "table_of"]


def plain_chunk(extent: Sequence[int], limit: int = CHUNK_ELEMENTS) -> tuple[int, ...]:
    """Extent of a chunk over (member, tensor axes): full from the last axis on while it fits ``limit``.

    The first axis that does not fit is cut into the fewest parts of nearly equal size, all before it into
    single steps.
    """
    chunk = [1] * len(extent)
    inner = 1
    for axis in range(len(extent) - 1, -1, -1):
        length = max(extent[axis], 1)
        if inner * length <= limit:
            chunk[axis] = length
            inner *= length
            continue
        parts = -(-length // max(limit // inner, 1))
        chunk[axis] = -(-length // parts)
        break
    return tuple(chunk)


def plain_table(tensors: Iterable[TensorSpec]) -> TensorTable:
    """The table of these tensors under the plain grid, with one slab for all.

    Raises ``InputError("bad_argument")`` for a name given twice, and for what no table can hold.
    """
    arrays = []
    for pattern, tensor, members in stack_tensors(tensors):
        count = Array.model_construct(members=members).count
        chunk = plain_chunk((count, *tensor.shape))
        arrays.append(array_of(pattern, tensor, members, chunk, SlabRule(by="common", of=0, count=0)))
    return table_of(arrays, slabs=0)


def array_of(
    pattern: str, tensor: TensorSpec, members: tuple[MemberBox, ...], chunk: tuple[int, ...], slab: SlabRule
) -> Array:
    """An array of tensors like ``tensor``; ``InputError("bad_argument")`` for what no table can hold."""
    try:
        return Array(
            pattern=pattern,
            dtype=tensor.dtype.name,
            shape=tensor.shape,
            members=members,
            chunk=chunk,
            slab=slab,
        )
    except ValidationError as error:
        problem = f"tensor {tensor.name!r} cannot be stored: {first_problem(error)}"
        raise InputError("bad_argument", problem, where=tensor.name) from None


def table_of(arrays: Iterable[Array], slabs: int) -> TensorTable:
    """The table of these arrays, sorted; ``InputError("bad_argument")`` for what no table can hold."""
    try:
        table = TensorTable.seal_new(slabs=slabs, arrays=tuple(sorted(arrays, key=array_order)))
    except ValidationError as error:
        raise InputError("bad_argument", f"the tensors make no table: {first_problem(error)}") from None
    size = len(table.to_bytes())
    if size > TABLE_BYTES:
        problem = f"the table of all tensor names has {size} bytes where at most {TABLE_BYTES} are allowed"
        raise InputError("bad_argument", f"{problem}; number the tensors, or give them shorter names")
    return table
