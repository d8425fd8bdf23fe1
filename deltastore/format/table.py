"""The tensor table: which tensors a stream has, stacked into arrays, and how they are cut.

SPEC section "Tensor table". A pattern is a tensor's name with its canonical decimal components replaced by
``*``; tensors with equal (pattern, shape, dtype) are one array, stacked on a leading member axis. So 18,867
tensors of a mixture-of-experts model are about 15 arrays.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from deltastore.errors import InputError, RuleError
from deltastore.format.dtypes import DTYPES, Dtype
from deltastore.format.limits import (
    CHUNK_ELEMENTS,
    INDEXES,
    MAX_INTEGER,
    MAX_RANK,
    NAME_BYTES,
    NAMES_BYTES,
    SLABS,
    TENSORS,
)
from deltastore.format.names import (
    INDEX_END,
    PLACE,
    Index,
    MemberBox,
    are_fewest,
    box_members,
    join_name,
    split_name,
)
from deltastore.format.sealed import Count, Sealed, Strict
from deltastore.format.seeds import tensor_seed
from deltastore.kernels.grid import ChunkGrid
from deltastore.kernels.pieces import GridArray, KernelTable
from deltastore.kernels.rows import ChunkList

__all__ = ["COMMON", "Array", "SlabRule", "TensorSpec", "TensorTable", "array_order", "stack_tensors"]

COMMON = 0
"""The slab of everything that every reader needs; the n slabs of a table are numbered 1 to n."""

Extent = Annotated[int, Field(ge=1, le=CHUNK_ELEMENTS)]
Range = tuple[Count, Count]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor in the canonical space: checkpoint name, shape, element type."""

    name: str
    shape: tuple[int, ...]
    dtype: Dtype

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor in the canonical space."""
        return self.elements * self.dtype.itemsize


class SlabRule(Strict):
    """Which slab a chunk belongs to.

    ``common``: slab 0. ``axis``: cell ``c`` of ``cells`` along axis ``of`` of the grid is in slab
    ``1 + c * n // cells``. ``member``: a chunk whose members have index ``e`` at position ``of`` is in slab
    ``1 + e * n // count``.
    """

    by: Literal["common", "axis", "member"]
    of: Count
    count: Count


class Array(Strict):
    """All tensors with equal (pattern, shape, dtype), stacked on a leading member axis."""

    pattern: str
    dtype: Annotated[str, Field(json_schema_extra={"enum": sorted(DTYPES)})]
    shape: Annotated[tuple[Count, ...], Field(fail_fast=True)]
    members: Annotated[tuple[Annotated[tuple[Range, ...], Field(fail_fast=True)], ...], Field(fail_fast=True)]
    chunk: Annotated[tuple[Extent, ...], Field(fail_fast=True)]
    slab: SlabRule

    @model_validator(mode="after")
    def _rules(self) -> Self:
        if self.dtype not in DTYPES:
            raise ValueError(f"element type {self.dtype!r} is not known")
        if len(self.shape) > MAX_RANK:
            raise RuleError("DS023", f"a tensor of more than {MAX_RANK} axes")
        if len(self.chunk) != 1 + len(self.shape):
            raise RuleError("DS024", "chunk has one extent for the member axis and one for each tensor axis")
        _check_ranges(self)
        if math.prod(self.chunk) > CHUNK_ELEMENTS:
            raise RuleError("DS024", f"a chunk of more than {CHUNK_ELEMENTS} elements")
        if math.prod(max(extent, 1) for extent in (self.count, *self.shape)) > MAX_INTEGER:
            raise RuleError("DS023", f"an array of more than {MAX_INTEGER} elements")
        if len(self.grid) >= 1 << 32:
            raise RuleError("DS023", "an array of 2**32 chunks or more")
        return self

    @cached_property
    def element(self) -> Dtype:
        """The element type."""
        return DTYPES[self.dtype]

    @cached_property
    def count(self) -> int:
        """Number of members."""
        return sum(math.prod(high - low for low, high in box) for box in self.members)

    @cached_property
    def elements_per_member(self) -> int:
        """Elements of one tensor."""
        return math.prod(self.shape)

    @cached_property
    def grid(self) -> ChunkGrid:
        """The chunk grid over (member, tensor axes)."""
        return ChunkGrid((self.count, *self.shape), self.chunk)

    def indexes(self) -> Iterator[Index]:
        """The index tuple of every member, in member order."""
        for box in self.members:
            if not box:
                yield ()
                continue
            *outer, (first, end) = box
            # Not by `product`, which makes a list of every range, of millions of numbers.
            for index in itertools.product(*(range(low, high) for low, high in outer)):
                for last in range(first, end):
                    yield (*index, last)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The tensor name of every member, in member order."""
        return tuple(join_name(self.pattern, index) for index in self.indexes())

    def slabs(self, chunks: np.ndarray[Any, Any], slabs: int) -> np.ndarray[Any, Any]:
        """The slab of each chunk number, as int64, in a table of ``slabs`` slabs."""
        rule = self.slab
        if rule.by == "common":
            return np.full(len(chunks), COMMON, dtype=np.int64)
        if rule.by == "axis":
            cells = self.grid.counts[rule.of]
            return 1 + self.grid.coordinate_along(chunks, rule.of).astype(np.int64) * slabs // cells
        member = self.grid.coordinate_along(chunks, 0).astype(np.int64) * self.chunk[0]
        slab: np.ndarray[Any, Any] = 1 + self._ruling[member] * slabs // rule.count
        return slab

    @cached_property
    def _ruling(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The index of every member that its slab follows from."""
        ruling = (index[self.slab.of] for index in self.indexes())
        return np.fromiter(ruling, np.int64, self.count)


class TensorTable(Sealed):
    """The table object: arrays in order, and the number of slabs.

    Array and chunk numbers in packs refer to this order. The name of the object in the store is its
    ``sha256``, so two trainers with the same tensors and cuts write the same table.
    """

    kind: Literal["table"] = "table"
    slabs: Annotated[int, Field(ge=0, le=SLABS)]
    arrays: Annotated[tuple[Array, ...], Field(fail_fast=True)]

    @model_validator(mode="after")
    def _rules(self) -> Self:
        if sum(array.count for array in self.arrays) > TENSORS:
            raise RuleError("DS023", f"more than {TENSORS} tensors")
        if sum(array.count * len(array.pattern.encode()) for array in self.arrays) > NAMES_BYTES:
            raise RuleError("DS023", f"more than {NAMES_BYTES} bytes of names")
        keys = [array_order(array) for array in self.arrays]
        if keys != sorted(keys):
            raise RuleError("DS021", "arrays are not in order")
        if len(keys) != len(set(keys)):
            raise RuleError("DS022", "two arrays are of one pattern, type and shape")
        for array in self.arrays:
            _check_slab_rule(array, self.slabs)
            _check_members(array)
        # A name has one pattern and one index, so only arrays of one pattern can have it both.
        for (pattern, _), alike in itertools.groupby(self.arrays, lambda one: array_order(one)[:2]):
            every = [array.indexes() for array in alike]
            merged = heapq.merge(*every) if len(every) > 1 else ()
            for before, index in itertools.pairwise(merged):
                if before == index:
                    raise RuleError("DS021", f"tensor {join_name(pattern, index)!r} is listed twice")
        return self

    @cached_property
    def places(self) -> dict[str, tuple[int, int]]:
        """Tensor name -> (array number, member number)."""
        return {
            name: (number, member)
            for number, array in enumerate(self.arrays)
            for member, name in enumerate(array.names)
        }

    @cached_property
    def elements(self) -> int:
        """Elements of the whole model."""
        return sum(array.count * array.elements_per_member for array in self.arrays)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of the whole model in the canonical space."""
        return sum(array.count * array.elements_per_member * array.element.itemsize for array in self.arrays)

    @cached_property
    def kernels(self) -> KernelTable:
        """The arrays as kernels see them. Digest seeds are made when the first kernel asks for them."""
        arrays = [
            GridArray(array.grid, array.element.itemsize, array.element.floating) for array in self.arrays
        ]
        return KernelTable(arrays, self._seeds)

    def _seeds(self, array: int) -> np.ndarray[Any, np.dtype[np.uint64]]:
        mine = self.arrays[array]
        seeds = (tensor_seed(join_name(mine.pattern, index)) for index in mine.indexes())
        return np.fromiter(seeds, np.uint64, mine.count)

    def slabs_of(self, chunks: ChunkList) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The slab of each of n chunks, int64 ``(n,)``; their numbers are known to be in range."""
        slabs = np.zeros(len(chunks), dtype=np.int64)
        order = np.argsort(chunks["array"], kind="stable")
        found, starts = np.unique(chunks["array"][order], return_index=True)
        for number, mine in zip(found.tolist(), np.split(order, starts[1:]), strict=True):
            slabs[mine] = self.arrays[number].slabs(chunks["chunk"][mine].astype(np.int64), self.slabs)
        return slabs

    def tensors(self) -> Iterator[TensorSpec]:
        """Every tensor, in table order."""
        for array in self.arrays:
            for name in array.names:
                yield TensorSpec(name, array.shape, array.element)

    def chunk_order(self) -> np.ndarray[Any, Any]:
        """Every (slab, array, chunk) as rows of an int64 array, in pack order."""
        blocks = []
        for number, array in enumerate(self.arrays):
            chunks = np.arange(len(array.grid), dtype=np.int64)
            slab = array.slabs(chunks, self.slabs)
            blocks.append(np.stack([slab, np.full_like(chunks, number), chunks], axis=1))
        rows = np.concatenate(blocks) if blocks else np.zeros((0, 3), dtype=np.int64)
        ordered: np.ndarray[Any, Any] = rows[np.argsort(rows[:, 0], kind="stable")]
        return ordered


def array_order(array: Array) -> tuple[str, int, str, tuple[int, ...]]:
    """The key by which arrays are sorted: pattern, number of indexes, element type, shape."""
    return (array.pattern, len(array.members[0]), array.dtype, array.shape)


def _check_ranges(array: Array) -> None:
    """What can be known of the members before any of them is made."""
    if len(array.pattern.encode()) > NAME_BYTES:
        raise RuleError("DS023", f"a tensor name is empty or longer than {NAME_BYTES} bytes")
    if not array.members:
        raise RuleError("DS022", "an array without members")
    if len({len(box) for box in array.members}) != 1:
        raise RuleError("DS020", "members are boxes of one length")
    if len(array.members[0]) not in (0, array.pattern.split(".").count(PLACE)):
        raise RuleError("DS022", f"pattern {array.pattern!r} does not take {len(array.members[0])} indexes")
    if len(array.members[0]) > INDEXES:
        raise RuleError("DS022", f"more than {INDEXES} indexes")
    if any(not low < high <= INDEX_END for box in array.members for low, high in box):
        raise RuleError("DS020", f"a member range is empty, or goes beyond {INDEX_END}")
    if array.count > TENSORS:
        raise RuleError("DS023", f"more than {TENSORS} members")


def _check_members(array: Array) -> None:
    """Whether the boxes are those of their members, and the pattern what the names are split into."""
    if not are_fewest(array.members):
        raise RuleError("DS020", "members are not in order, or not in the fewest boxes")
    first = tuple(low for low, _ in array.members[0])
    if split_name(join_name(array.pattern, first)) != (array.pattern, first):
        raise RuleError("DS022", f"pattern {array.pattern!r} has a component that is an index")
    # The last member of a box has its longest name.
    lasts = (tuple(high - 1 for _, high in box) for box in array.members)
    if not array.pattern or any(len(join_name(array.pattern, one).encode()) > NAME_BYTES for one in lasts):
        raise RuleError("DS023", f"a tensor name is empty or longer than {NAME_BYTES} bytes")


def _check_slab_rule(array: Array, slabs: int) -> None:
    problem = _slab_problem(array, slabs)
    if problem is not None:
        raise RuleError("DS025", problem)


def _slab_problem(array: Array, slabs: int) -> str | None:
    rule = array.slab
    if (rule.by == "common" and rule.of) or (rule.by != "member" and rule.count):
        return "a slab rule with a number that it does not use"
    if rule.by == "common":
        return None
    if slabs == 0:
        return "a slab rule in a table without slabs"
    if rule.by == "axis" and rule.of >= len(array.chunk):
        return "a slab rule on an axis that the array lacks"
    if rule.by == "member":
        if rule.of >= len(array.members[0]) or array.chunk[0] != 1:
            return "a slab rule by member wants that index, and chunks of one member"
        if any(box[rule.of][1] > rule.count for box in array.members):
            return "a member index at or above the count of its slab rule"
    return None


def stack_tensors(tensors: Iterable[TensorSpec]) -> list[tuple[str, TensorSpec, tuple[MemberBox, ...]]]:
    """Group tensors into (pattern, a representative tensor, member boxes), unsorted.

    Raises ``InputError("bad_argument")`` for a name twice.
    """
    groups: dict[tuple[str, int, str, tuple[int, ...]], list[tuple[Index, TensorSpec]]] = {}
    seen: set[str] = set()
    for tensor in tensors:
        if tensor.name in seen:
            raise InputError("bad_argument", f"tensor {tensor.name!r} is given twice", where=tensor.name)
        seen.add(tensor.name)
        pattern, index = split_name(tensor.name)
        groups.setdefault((pattern, len(index), tensor.dtype.name, tensor.shape), []).append((index, tensor))
    return [
        (key[0], group[0][1], box_members([index for index, _ in group])) for key, group in groups.items()
    ]
