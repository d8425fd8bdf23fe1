"""Names, patterns and member boxes against the words of the specification."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deltastore.format.limits import INDEXES
from deltastore.format.names import (
    Index,
    MemberBox,
    are_fewest,
    box_members,
    join_name,
    split_name,
)

DIGITS = "0123456789"

components = st.one_of(
    st.sampled_from(["", "0", "00", "03", "7", "10", "999999999", "1000000000", "*", "**", "a*", "-1", "+1"]),
    st.sampled_from(
        ["1_0", "1e3", "0x1", " 1", "1 ", "1\n", "\n1", "1\r", "1\0", "٣", "１", "²", "w", "layers"]
    ),
    st.text(alphabet=DIGITS, max_size=11),
    st.text(max_size=3),
)
names = st.lists(components, min_size=1, max_size=6).map(".".join)


def is_index(component: str) -> bool:
    """``0``, or a decimal of at most 9 ASCII digits without a leading zero."""
    plain = 1 <= len(component) <= 9 and all(letter in DIGITS for letter in component)
    return plain and (component == "0" or component[0] != "0")


@settings(max_examples=500)
@given(name=names)
@example(name="layers.3\n.w")
@example(name="3\n")
@example(name="a.*.3")
@example(name="*")
@example(name="")
@example(name="...")
@example(name="0.0.0")
def test_splitting_is_what_the_specification_says(name: str) -> None:
    parts = name.split(".")
    pattern, index = split_name(name)
    if "*" in parts:
        assert (pattern, index) == (name, ())
    else:
        assert pattern == ".".join("*" if is_index(part) else part for part in parts)
        assert index == tuple(int(part) for part in parts if is_index(part))
    assert join_name(pattern, index) == name


@given(one=names, two=names)
@example(one="layers.3\n.w", two="layers.3.w")
@example(one="a.*.w", two="a.3.w")
@example(one="a.03.w", two="a.3.w")
def test_two_names_never_fall_together(one: str, two: str) -> None:
    assert (split_name(one) == split_name(two)) == (one == two)


@pytest.mark.parametrize(("pattern", "index"), [("a", (1,)), ("a.*", (1, 2)), ("a.*.*", (1,)), ("a*", (1,))])
def test_indexes_that_a_pattern_does_not_take(pattern: str, index: Index) -> None:
    with pytest.raises(ValueError, match="indexes"):
        join_name(pattern, index)


def naive_boxes(ordered: list[Index]) -> list[list[tuple[int, int]]]:
    """The procedure of DS020, step by step."""
    if ordered == [()]:
        return [[]]
    boxes: list[list[tuple[int, int]]] = []
    for first in sorted({index[0] for index in ordered}):
        remainders = naive_boxes([index[1:] for index in ordered if index[0] == first])
        before = boxes[-1] if boxes else None
        if len(remainders) == 1 and before and before[0][1] == first and before[1:] == remainders[0]:
            boxes[-1] = [(before[0][0], first + 1), *before[1:]]
        else:
            boxes += [[(first, first + 1), *remainder] for remainder in remainders]
    return boxes


def members_of(boxes: tuple[tuple[tuple[int, int], ...], ...]) -> list[Index]:
    """Index tuples, box by box and row-major within a box."""
    members: list[Index] = []
    for box in boxes:
        inside: list[Index] = [()]
        for low, high in box:
            inside = [(*index, at) for index in inside for at in range(low, high)]
        members += inside
    return members


@st.composite
def index_sets(draw: st.DrawFn) -> list[Index]:
    """Sets of index tuples that lie close enough together to make boxes, in any order."""
    rank = draw(st.integers(0, 3))
    tuples = st.tuples(*[st.integers(0, draw(st.integers(0, 4))) for _ in range(rank)])
    return draw(st.permutations(sorted(draw(st.sets(tuples, min_size=1, max_size=30)))))


@pytest.mark.spec("DS020")
@settings(max_examples=500)
@given(indexes=index_sets())
@example(indexes=[(0, 0), (0, 5), (1, 5)])
@example(indexes=[(0, 5), (1, 5), (1, 6), (2, 6)])
def test_boxes_are_those_of_the_procedure_and_hold_the_members_in_order(indexes: list[Index]) -> None:
    boxes = box_members(indexes)
    assert [list(box) for box in boxes] == naive_boxes(sorted(indexes))
    assert members_of(boxes) == sorted(indexes)


@pytest.mark.spec("DS020")
@given(indexes=index_sets())
def test_boxes_depend_on_the_set_alone(indexes: list[Index]) -> None:
    assert box_members(indexes) == box_members(sorted(indexes, reverse=True))


def test_a_full_product_is_one_box() -> None:
    indexes = [(layer, expert) for layer in range(48) for expert in range(128)]
    assert box_members(indexes) == (((0, 48), (0, 128)),)
    assert box_members([()]) == ((),)
    assert box_members([(0,), (1,), (3,)]) == (((0, 2),), ((3, 4),))


def test_a_name_with_as_many_indexes_as_a_name_can_have() -> None:
    name = ".".join("0" * INDEXES)
    assert split_name(name) == (".".join("*" * INDEXES), (0,) * INDEXES)
    assert join_name(*split_name(name)) == name


def test_a_name_with_more_indexes_is_its_own_pattern() -> None:
    for count in (INDEXES + 1, 512):
        name = ".".join("0" * count)
        assert split_name(name) == (name, ())


ranges = st.tuples(st.integers(0, 3), st.integers(1, 2)).map(lambda one: (one[0], one[0] + one[1]))
box_lists = st.integers(0, 3).flatmap(
    lambda axes: st.lists(st.tuples(*[ranges] * axes), min_size=1, max_size=5)
)


@pytest.mark.spec("DS020")
@settings(max_examples=300)
@given(boxes=box_lists, tidy=st.booleans())
@example(boxes=[((0, 1), (0, 1)), ((0, 1), (2, 3)), ((1, 2), (2, 3))], tidy=False)
@example(boxes=[((0, 1), (0, 1)), ((0, 2), (2, 3))], tidy=False)
@example(boxes=[((0, 2), (0, 1)), ((1, 2), (1, 2))], tidy=False)
@example(boxes=[((0, 1), (0, 1)), ((1, 3), (0, 1))], tidy=False)
@example(boxes=[((0, 1),), ((0, 1),)], tidy=False)
def test_boxes_are_judged_without_their_members(boxes: list[MemberBox], tidy: bool) -> None:
    whole = tuple(sorted(boxes)) if tidy else tuple(boxes)
    fewest = box_members(members_of(whole))
    assert are_fewest(whole) == (fewest == whole)
    assert are_fewest(fewest) == (len(set(members_of(whole))) == len(members_of(fewest)))
