"""Tables as JSON, so that a test can break one member."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from deltastore.format.canonical import canonical_bytes, seal
from deltastore.format.dtypes import DTYPES
from deltastore.format.names import Index, box_members, join_name
from deltastore.format.table import TensorTable
from deltastore.layout.cutting import plain_chunk

Fields = dict[str, Any]


def array(**changes: Any) -> Fields:
    """One array: BF16, one member, shape (8,); ``changes`` replace its members, ``...`` removes one."""
    plain: Fields = {
        "pattern": "norm",
        "dtype": "BF16",
        "shape": [8],
        "members": [[]],
        "chunk": [1, 8],
        "slab": {"by": "common", "of": 0, "count": 0},
    }
    return {key: value for key, value in {**plain, **changes}.items() if value is not ...}


def table_bytes(rows: list[Fields], n: int = 0, /, **changes: Any) -> bytes:
    """A sealed table; ``changes`` replace its members, ``...`` removes one."""
    fields = {"format": 1, "kind": "table", "slabs": n, "arrays": rows, **changes}
    return canonical_bytes(seal({key: value for key, value in fields.items() if value is not ...}))


def table(arrays: list[Fields], slabs: int = 0) -> TensorTable:
    """The parsed table."""
    return TensorTable.from_bytes(table_bytes(arrays, slabs), "table")


@st.composite
def _arrays(draw: st.DrawFn, slabs: int) -> Fields:
    rank = draw(st.integers(0, 2))
    index = st.tuples(*[st.integers(0, 4) for _ in range(rank)])
    indexes: list[Index] = sorted(draw(st.sets(index, min_size=1, max_size=8)))
    letter = draw(st.sampled_from("abcdefgh"))
    shape = draw(st.lists(st.integers(0, 5), max_size=3))
    extent = [len(indexes), *shape]
    chunk = [draw(st.integers(1, max(length, 1))) for length in extent]
    ways = ["common", "axis", *(["member"] if rank else [])] if slabs else ["common"]
    by = draw(st.sampled_from(ways))
    of = {"common": st.just(0), "axis": st.integers(0, len(shape)), "member": st.integers(0, rank - 1)}
    at = draw(of[by])
    rule = {"by": by, "of": at, "count": 0}
    if by == "member":
        chunk[0] = 1
        highest = max(index[at] for index in indexes)
        rule["count"] = draw(st.integers(highest + 1, highest + 4))
    if by == "common" and draw(st.booleans()):
        chunk = list(plain_chunk(extent, draw(st.integers(1, 20))))
    return array(
        pattern=".".join([letter, *"*" * rank]),
        dtype=draw(st.sampled_from(sorted(DTYPES))),
        shape=shape,
        members=[[list(span) for span in box] for box in box_members(indexes)],
        chunk=chunk,
        slab=rule,
    )


def _order(fields: Fields) -> tuple[Any, ...]:
    return (fields["pattern"], len(fields["members"][0]), fields["dtype"], fields["shape"])


def _names(fields: Fields) -> set[str]:
    """Tensor names, by the specification's own words."""
    names = set()
    for box in fields["members"]:
        inside: list[Index] = [()]
        for low, high in box:
            inside = [(*index, at) for index in inside for at in range(low, high)]
        names |= {join_name(fields["pattern"], index) for index in inside}
    return names


@st.composite
def tables(draw: st.DrawFn) -> TensorTable:
    """Valid tables of a few arrays under any grid, with and without slabs."""
    slabs = draw(st.sampled_from([0, 0, 1, 2, 3, 7]))
    chosen: list[Fields] = []
    taken: set[str] = set()
    for fields in draw(st.lists(_arrays(slabs), min_size=1, max_size=4)):
        if not _names(fields) & taken and _order(fields) not in map(_order, chosen):
            chosen.append(fields)
            taken |= _names(fields)
    return table(sorted(chosen, key=_order), slabs)
