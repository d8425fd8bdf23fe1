"""SPEC 7: tensor tables, chunk grids and slabs."""

from __future__ import annotations

import math
import re
from itertools import groupby, pairwise, product
from typing import Any, NamedTuple

from spec.decoder.elements import U64, WIDTHS
from spec.decoder.json_objects import COUNT, SEAL, conforms, decode_json
from spec.decoder.refusal import need


def split_name(name: str) -> tuple[str, tuple[int, ...]]:
    """SPEC 7.1: the pattern and the index tuple of a tensor's name."""
    parts = name.split(".")
    if "*" in parts:
        return name, ()
    indexes = [part for part in parts if re.fullmatch("0|[1-9][0-9]{0,8}", part)]
    if len(indexes) > 8:
        return name, ()
    return ".".join("*" if part in indexes else part for part in parts), tuple(map(int, indexes))


def join_name(pattern: str, indexes: tuple[int, ...]) -> str:
    """The name with this pattern and index tuple."""
    rest = map(str, indexes)
    return ".".join(next(rest) if part == "*" and indexes else part for part in pattern.split("."))


def boxes(tuples: list[tuple[int, ...]]) -> list[list[list[int]]]:
    """DS020: the boxes of ascending index tuples."""
    result: list[list[list[int]]] = []
    for first, group in groupby(tuples, key=lambda item: item[:1]):
        if not first:
            return [[]]
        rest = boxes([item[1:] for item in group])
        if len(rest) == 1 and result and result[-1][0][1] == first[0] and result[-1][1:] == rest[0]:
            result[-1][0][1] += 1
        else:
            result += [[[first[0], first[0] + 1], *box] for box in rest]
    return result


class Array(NamedTuple):
    """Tensors stacked on a leading member axis, and how they are cut; `indexes` are the members' tuples."""

    pattern: str
    dtype: str
    shape: tuple[int, ...]
    members: list[list[list[int]]]
    chunk: tuple[int, ...]
    slab: dict[str, Any]
    indexes: list[tuple[int, ...]]
    slabs: int

    def names(self) -> list[str]:
        """Tensor names by member number."""
        return [join_name(self.pattern, indexes) for indexes in self.indexes]

    def stacked(self) -> tuple[int, ...]:
        """Extents over (member, tensor axes)."""
        return (len(self.indexes), *self.shape)

    def grid(self) -> list[int]:
        """SPEC 7.2: number of chunks along every axis."""
        return [-(-extent // step) for extent, step in zip(self.stacked(), self.chunk, strict=True)]

    def cell(self, chunk: int) -> list[int]:
        """Grid coordinates of a chunk."""
        grid = self.grid()
        return [chunk // math.prod(grid[axis + 1 :]) % extent for axis, extent in enumerate(grid)]

    def number(self, cell: list[int]) -> int:
        """The number of the chunk at grid coordinates."""
        number = 0
        for at, extent in zip(cell, self.grid(), strict=True):
            number = number * extent + at
        return number

    def box(self, cell: list[int]) -> tuple[slice, ...]:
        """The box of a chunk, cut short at the upper edges."""
        axes = zip(cell, self.chunk, self.stacked(), strict=True)
        return tuple(slice(at * step, min((at + 1) * step, extent)) for at, step, extent in axes)

    def elements(self, chunk: int) -> int:
        """N: number of elements of a chunk."""
        return math.prod(axis.stop - axis.start for axis in self.box(self.cell(chunk)))

    def slab_of(self, chunk: int) -> int:
        """SPEC 7.3: the slab of a chunk."""
        by, of, total = self.slab["by"], self.slab["of"], self.slab["count"]
        if by == "common":
            return 0
        at = self.cell(chunk)
        part, whole = (at[of], self.grid()[of]) if by == "axis" else (self.indexes[at[0]][of], total)
        return int(1 + part * self.slabs // whole)


class Table(NamedTuple):
    """A tensor table."""

    sha256: str
    arrays: list[Array]

    def elements(self) -> int:
        """Elements of the whole model."""
        return sum(math.prod(array.stacked()) for array in self.arrays)


ARRAY = {
    "pattern": str,
    "dtype": tuple(WIDTHS),
    "shape": [COUNT],
    "members": [[lambda pair: conforms(pair, [COUNT]) and len(pair) == 2]],
    "chunk": [range(1, 2**20 + 1)],
}
ARRAY |= {"slab": {"by": ("common", "axis", "member"), "of": COUNT, "count": COUNT}}
TABLE = {**SEAL, "kind": "table", "slabs": range(4097), "arrays": [ARRAY]}


def member_indexes(pattern: str, members: list[list[list[int]]]) -> list[tuple[int, ...]]:
    """The index tuples of boxes, in order of member number; of DS020 and DS022, what they can break."""
    need(members, "bad_json", "DS022", "an array without members")
    need(len({len(box) for box in members}) == 1, "bad_json", "DS020", "boxes of different rank")
    stars = pattern.split(".").count("*")
    need(len(members[0]) in (0, stars), "bad_json", "DS022", "number of indexes")
    need(len(members[0]) <= 8, "bad_json", "DS022", "more than 8 indexes")
    good = all(low < high <= 10**9 for box in members for low, high in box)
    need(good, "bad_json", "DS020", "an empty range of members, or an index of more than 9 digits")
    total = sum(math.prod(high - low for low, high in box) for box in members)
    need(total <= 2**21, "bad_json", "DS023", "tensors of a table")
    return [at for box in members for at in product(*(range(low, high) for low, high in box))]


def check_grid(array: Array) -> None:
    """DS023 and DS024 of one array."""
    need(math.prod(array.chunk) <= 2**20, "bad_json", "DS024", "elements of a chunk")
    extents = [max(extent, 1) for extent in array.stacked()]
    need(math.prod(extents) < 2**53, "bad_json", "DS023", "elements of an array")
    need(math.prod(array.grid()) < 2**32, "bad_json", "DS023", "chunks of an array")


def check_slab_rule(array: Array) -> None:
    """DS025."""
    by, of, total = array.slab["by"], array.slab["of"], array.slab["count"]
    good = by == "common" or array.slabs > 0
    good &= (by != "common" or of == 0) and (by == "member" or total == 0)
    good &= by != "axis" or of <= len(array.shape)
    if by == "member":
        good &= of < len(array.indexes[0]) and array.chunk[0] == 1
        good &= good and all(indexes[of] < total for indexes in array.indexes)
    need(good, "bad_json", "DS025", "a slab rule")


def check_members(array: Array) -> None:
    """DS020, DS022 and DS023: whether boxes, pattern and names are those of the members."""
    ascend = all(one < two for one, two in pairwise(array.indexes))
    need(ascend and boxes(array.indexes) == array.members, "bad_json", "DS020", "not the boxes of DS020")
    first = array.indexes[0]
    own = split_name(join_name(array.pattern, first)) == (array.pattern, first)
    need(own, "bad_json", "DS022", "not the pattern of its names")
    lengths = [len(name.encode()) for name in array.names()]
    need(min(lengths) >= 1 and max(lengths) <= 1024, "bad_json", "DS023", "the length of a name")


def decode_table(raw: bytes) -> Table:
    """SPEC 7: a tensor table from its stored bytes."""
    value = decode_json(raw, 64 * 2**20)
    need(conforms(value, TABLE), "bad_json", "DS013", "not of the table's schema")
    arrays = []
    for item in value["arrays"]:
        need(len(item["shape"]) <= 16, "bad_json", "DS023", "axes of a tensor")
        axes = len(item["chunk"]) == len(item["shape"]) + 1
        need(axes, "bad_json", "DS024", "a chunk's extents over (member, tensor axes)")
        indexes = member_indexes(item["pattern"], item["members"])
        fields = item | {"shape": tuple(item["shape"]), "chunk": tuple(item["chunk"])}
        arrays.append(Array(**fields, indexes=indexes, slabs=value["slabs"]))
        check_grid(arrays[-1])
    need(sum(len(array.indexes) for array in arrays) <= 2**21, "bad_json", "DS023", "tensors of a table")
    total = sum(len(array.pattern.encode()) * len(array.indexes) for array in arrays)
    need(total <= 2**28, "bad_json", "DS023", "bytes of all patterns")
    keys = [(array.pattern, len(array.indexes[0]), array.dtype, array.shape) for array in arrays]
    need(all(one <= two for one, two in pairwise(keys)), "bad_json", "DS021", "order of arrays")
    need(len(set(keys)) == len(keys), "bad_json", "DS022", "two arrays of one pattern, type and shape")
    for array in arrays:
        check_slab_rule(array)
        check_members(array)
    names = [name for array in arrays for name in array.names()]
    need(len(set(names)) == len(names), "bad_json", "DS021", "a tensor twice")
    return Table(value["sha256"], arrays)


def tensors(table: Table, weights: list[U64]) -> dict[str, tuple[Array, U64]]:
    """Views of the bits of every tensor by its name; weights are one stacked array per array of the table."""
    return {
        name: (array, stacked[member, ...])
        for array, stacked in zip(table.arrays, weights, strict=True)
        for member, name in enumerate(array.names())
    }


def stored(array: Array, bits: U64) -> bytes:
    """The bits of a tensor as bytes, little-endian."""
    return bits.astype(f"<u{WIDTHS[array.dtype] // 8}").tobytes()
