"""User metadata: what a record holds, and what is the caller's error."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltastore.errors import InputError
from deltastore.format.limits import MAX_INTEGER, METADATA_ENTRIES, METADATA_TEXT
from deltastore.format.records import check_label, check_metadata, parse_record

from .record_fields import put, record, stored

ALPHABET = "abcxyzABCXYZ0189_.-"


class Level(enum.IntEnum):
    HIGH = 3


@given(
    st.dictionaries(
        st.text(ALPHABET, min_size=1, max_size=64),
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(-MAX_INTEGER, MAX_INTEGER),
            st.text(st.characters(exclude_categories=["Cs"]), max_size=METADATA_TEXT),
        ),
        max_size=METADATA_ENTRIES,
    )
)
def test_what_fits_comes_back_from_a_record(metadata: dict[str, Any]) -> None:
    assert check_metadata(metadata) == metadata
    read = parse_record(stored(put(record("anchor"), ("metadata",), metadata)), 2)
    kept: Any = read.model_dump()["metadata"]
    assert kept == metadata
    assert [type(value) for value in kept.values()] == [type(metadata[key]) for key in kept]


def test_the_largest_metadata() -> None:
    full = {f"{at:064d}": "ü" * METADATA_TEXT for at in range(METADATA_ENTRIES)}
    assert check_metadata(full) == full
    with pytest.raises(InputError):
        check_metadata({**full, "one": 1})


@pytest.mark.parametrize(
    "metadata",
    [
        {"": 1},
        {"a" * 65: 1},
        {"a b": 1},
        {"ä": 1},
        {"a\n": 1},
        {"a/b": 1},
        {1: 1},
        {None: 1},
        {"a": "x" * (METADATA_TEXT + 1)},
        {"a": "\ud800"},
        {"a": 1.0},
        {"a": float("nan")},
        {"a": MAX_INTEGER + 1},
        {"a": -MAX_INTEGER - 1},
        {"a": 10**5000},
        {"a": b"x"},
        {"a": [1]},
        {"a": {"b": 1}},
        {"a": np.int64(1)},
        {"a": np.float32(1)},
        {"a": object()},
    ],
    ids=range(21),
)
def test_what_does_not_fit_is_the_callers_error(metadata: Any) -> None:
    with pytest.raises(InputError, match="metadata") as caught:
        check_metadata(metadata)
    assert caught.value.code == "bad_argument"
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_subclasses_of_what_fits_are_stored_as_what_they_are() -> None:
    kept = check_metadata({"level": Level.HIGH, "flag": True})
    assert stored(put(record("anchor"), ("metadata",), kept))
    assert kept == {"level": 3, "flag": True}
    assert kept["flag"] is True


@pytest.mark.parametrize("label", ["x" * 201, "\ud800", None, 5, b"x"], ids=range(5))
def test_labels(label: Any) -> None:
    assert check_label("ü" * 200) == "ü" * 200
    with pytest.raises(InputError) as caught:
        check_label(label)
    assert caught.value.code == "bad_argument"
