"""Key rules, and what the stores share."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import deltastore.stores
from deltastore.errors import InputError
from deltastore.stores.base import MAX_KEY_LENGTH, as_octets, check_key, check_prefix

from .key_conformance import BAD_KEYS, ORDERED_KEYS

ALPHABET = "aZ09_.-/\\ \0é~"


@pytest.mark.parametrize("key", [*ORDERED_KEYS, "a" * 200, "/".join(["ab1"] * 256)])
def test_good_keys_come_back(key: str) -> None:
    assert check_key(key) == key


@pytest.mark.parametrize("key", BAD_KEYS, ids=range(len(BAD_KEYS)))
def test_bad_keys_are_named_on_one_printable_line(key: str) -> None:
    with pytest.raises(InputError) as caught:
        check_key(key)
    assert caught.value.code == "bad_key"
    for text in (str(caught.value), str(caught.value.where)):
        assert text.isprintable()
        assert len(text) < 300


def test_the_longest_key() -> None:
    longest = "/".join(["a" * 127] * 8)[:MAX_KEY_LENGTH] + "b"
    assert len(longest) == MAX_KEY_LENGTH
    assert check_key(longest) == longest
    assert check_prefix(longest) == longest
    for check in (check_key, check_prefix):
        with pytest.raises(InputError, match="1024 characters"):
            check(longest + "b")


def legal(key: str) -> bool:
    """The rule in one expression, to compare with."""
    segments = key.split("/")
    return 1 <= len(key) <= 1024 and all(
        re.fullmatch("[A-Za-z0-9_][A-Za-z0-9._-]{0,199}", segment) for segment in segments
    )


def accepted(check: object, text: str) -> bool:
    try:
        return callable(check) and check(text) == text
    except InputError:
        return False


@settings(derandomize=True, database=None)
@given(st.text(ALPHABET, max_size=12))
def test_keys_are_accepted_exactly_by_the_rule(text: str) -> None:
    assert accepted(check_key, text) == legal(text)


@settings(derandomize=True, database=None)
@given(st.text(ALPHABET, max_size=12))
def test_a_prefix_is_what_some_key_starts_with(text: str) -> None:
    assert accepted(check_prefix, text) == (legal(text) or legal(text + "a"))


@settings(derandomize=True, database=None)
@given(st.binary(max_size=64))
def test_octets_are_a_view_not_a_copy(data: bytes) -> None:
    buffer = bytearray(data)
    view = as_octets("k", buffer)
    assert (view.format, view.ndim, bytes(view)) == ("B", 1, data)
    if data:
        buffer[0] ^= 1
        assert view[0] == buffer[0]


def test_the_package_offers_what_it_says() -> None:
    assert sorted(deltastore.stores.__all__) == deltastore.stores.__all__
    assert all(hasattr(deltastore.stores, name) for name in deltastore.stores.__all__)
