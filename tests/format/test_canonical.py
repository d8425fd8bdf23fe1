"""Canonical JSON: one spelling for every value, and nothing else gets in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deltastore.errors import CorruptError, DeltastoreError, InputError, UnsupportedError
from deltastore.format.canonical import canonical_bytes, parse_canonical, seal, sha256_hex
from deltastore.format.limits import MAX_DEPTH, MAX_INTEGER

ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
keys = st.text(st.characters(max_codepoint=127), max_size=6)
scalars = st.one_of(st.none(), st.booleans(), st.integers(-MAX_INTEGER, MAX_INTEGER), texts)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(keys, values, max_size=5)


def naive_text(value: Any) -> str:
    """The canonical form in the words of RFC 8785, restricted as SPEC section 5 says."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        letters = (ESCAPES.get(x, x if x >= " " else f"\\u{ord(x):04x}") for x in value)
        return f'"{"".join(letters)}"'
    if isinstance(value, dict):
        return "{" + ",".join(f"{naive_text(key)}:{naive_text(value[key])}" for key in sorted(value)) + "}"
    return "[" + ",".join(map(naive_text, value)) + "]"


def code_of(data: bytes) -> str | None:
    """The code with which ``data`` is refused; None if it is not."""
    try:
        parse_canonical(data, "log/7.json")
    except DeltastoreError as error:
        return error.code
    return None


def nested(depth: int, kind: str) -> Any:
    """``depth`` containers in each other, the innermost one empty."""
    value: Any = {} if kind == "object" else []
    for _ in range(depth - 1):
        value = {"a": value} if kind == "object" else [value]
    return value


@settings(max_examples=400)
@given(value=objects)
@example(value={"text": "".join(map(chr, range(0x100))) + "\u2028\u2029\ufeff\uffff\U0001f600"})
@example(value={"b": 1, "a": 2, "B": 3, "_": 4, "": 5, "\x00": 6, "\x7f": 7, "aa": 8})
@example(value={"n": [0, -1, MAX_INTEGER, -MAX_INTEGER, True, False, None]})
def test_one_spelling_and_it_reads_back(value: Any) -> None:
    data = canonical_bytes(value)
    assert data == naive_text(value).encode()
    assert json.loads(data) == value
    assert data == canonical_bytes(json.loads(data))


@given(value=objects)
def test_the_order_of_insertion_does_not_show(value: dict[str, Any]) -> None:
    assert canonical_bytes(dict(reversed(value.items()))) == canonical_bytes(value)


@pytest.mark.spec("DS011")
@settings(max_examples=200)
@given(value=objects)
def test_a_seal_is_the_hash_of_everything_else(value: dict[str, Any]) -> None:
    sealed = seal(value)
    body = {key: item for key, item in value.items() if key != "sha256"}
    assert sealed == {**body, "sha256": sha256_hex(canonical_bytes(body))}
    assert seal(sealed) == sealed


@pytest.mark.parametrize(
    "value",
    [
        1.0,
        float("nan"),
        {"a": 0.5},
        {"a": [1, {"b": -0.0}]},
        MAX_INTEGER + 1,
        -MAX_INTEGER - 1,
        10**5000,
        "\ud800",
        {"a": "x\udfffy"},
        {"ä": 1},
        {1: 1},
        {None: 1},
        {"\ud800": 1},
        b"a",
        {"a": b"a"},
        {1, 2},
        object(),
    ],
    ids=range(17),
)
def test_what_has_no_canonical_form(value: Any) -> None:
    with pytest.raises(InputError) as caught:
        canonical_bytes(value)
    assert caught.value.code == "bad_argument"
    assert len(str(caught.value)) < 200


@pytest.mark.spec("DS100")
@pytest.mark.parametrize("kind", ["object", "list"])
def test_nesting(kind: str) -> None:
    """Sixteen deep, counted from the object itself, whether or not the innermost one is empty."""
    canonical_bytes(nested(MAX_DEPTH, kind))
    canonical_bytes(seal({"format": 1, "a": nested(MAX_DEPTH - 1, kind)}))
    for depth in (MAX_DEPTH + 1, MAX_DEPTH + 2, 500):
        with pytest.raises(InputError, match="nested"):
            canonical_bytes(nested(depth, kind))
    within = {"format": 1, "a": nested(MAX_DEPTH - 1, kind)}
    assert code_of(canonical_bytes(seal(within))) is None
    beyond = {"format": 1, "a": nested(MAX_DEPTH, kind)}
    sealed = {**beyond, "sha256": sha256_hex(naive_text(beyond).encode())}
    assert code_of(naive_text(sealed).encode()) == "bad_json"


@pytest.mark.parametrize("data", [b"[" * 10**6, b'{"a":' * 10**5, b"[" * 10**5 + b"]" * 10**5], ids=len)
def test_bottomless_nesting_is_an_ordinary_error(data: bytes) -> None:
    assert code_of(data) == "bad_json"


@pytest.mark.spec("DS010", "DS011")
@settings(max_examples=200)
@given(value=objects)
def test_a_sealed_object_reads_back(value: dict[str, Any]) -> None:
    sealed = seal({**value, "format": 1})
    assert parse_canonical(canonical_bytes(sealed), "log/7.json") == sealed


@pytest.mark.spec("DS010", "DS011")
@settings(max_examples=500)
@given(value=objects, at=st.integers(0, 10**6), flip=st.integers(1, 255), way=st.sampled_from("fcid"))
def test_any_change_of_any_byte_is_found(value: dict[str, Any], at: int, flip: int, way: str) -> None:
    data = canonical_bytes(seal({**value, "format": 1}))
    at %= len(data)
    octet = bytes([data[at] ^ flip])
    changed = {
        "f": data[:at] + octet + data[at + 1 :],
        "c": data[:at],
        "i": data[:at] + octet + data[at:],
        "d": data[:at] + data[at + 1 :],
    }[way]
    assert code_of(changed) in ("bad_json", "bad_hash", "newer_format")


GOOD = seal({"format": 1, "n": 10, "s": "aé/\n", "l": [1, 2], "o": {"a": 1, "b": None}})
TEXT = canonical_bytes(GOOD).decode()


@pytest.mark.spec("DS010")
@pytest.mark.parametrize(
    "text",
    [
        TEXT + "\n",
        " " + TEXT,
        "\ufeff" + TEXT,
        TEXT.replace(":", ": ", 1),
        TEXT.replace(",", ", ", 1),
        TEXT.replace('"n":10', '"n":10.0'),
        TEXT.replace('"n":10', '"n":1e1'),
        TEXT.replace('"n":10', '"n":010'),
        TEXT.replace('"n":10', '"n":+10'),
        TEXT.replace('"n":10', '"n":0xA'),
        TEXT.replace('"n":10', '"n":NaN'),
        TEXT.replace('"n":10', '"n":Infinity'),
        TEXT.replace('"n":10', '"n":-0'),
        TEXT.replace('"n":10', '"n":' + "1" * 5000),
        TEXT.replace('"n":10', '"n":9007199254740992'),
        TEXT.replace("aé/", "a\\u00e9/"),
        TEXT.replace("aé/", "\\u0061é/"),
        TEXT.replace("aé/", "aé\\/"),
        TEXT.replace("\\n", "\\u000a"),
        TEXT.replace("\\n", "\\u000A"),
        TEXT.replace("\\n", "\n"),
        TEXT.replace("aé/", "\\ud83d\\ude00"),
        TEXT.replace("aé/", "\\ud83d"),
        TEXT.replace('"a":1,"b":null', '"b":null,"a":1'),
        TEXT.replace('"a":1', '"a":2,"a":1'),
        TEXT.replace('"format":1', '"format":1,"format":1'),
        TEXT.replace("[1,2]", "[1,2,]"),
        TEXT.replace('"a":1', '"á":1'),
        TEXT.replace("null", "Null"),
        TEXT.replace('"', "'"),
        TEXT + TEXT,
        f"[{TEXT}]",
        "",
        "{",
        "null",
        "1",
        '"a"',
    ],
    ids=range(37),
)
def test_other_spellings(text: str) -> None:
    assert text != TEXT
    assert code_of(text.encode()) == "bad_json"


@pytest.mark.spec("DS010")
@pytest.mark.parametrize(
    "octets", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf5\x80\x80\x80", b"\x00"], ids=bytes.hex
)
def test_bytes_that_are_not_utf8(octets: bytes) -> None:
    data = TEXT.encode().replace("é".encode(), octets)
    assert code_of(data) == "bad_json"
    assert code_of(TEXT.encode("utf-16")) == "bad_json"
    assert code_of(TEXT.encode("utf-32")) == "bad_json"


@pytest.mark.spec("DS011")
@pytest.mark.parametrize(
    "sha256", ["", "0" * 64, None, 5, True, [], GOOD["sha256"].upper(), GOOD["sha256"] + " "]
)
def test_a_wrong_hash_of_any_kind(sha256: Any) -> None:
    data = canonical_bytes({**GOOD, "sha256": sha256})
    with pytest.raises(CorruptError) as caught:
        parse_canonical(data, "log/7.json")
    assert (caught.value.code, caught.value.where) == ("bad_hash", "log/7.json")


@pytest.mark.spec("DS011")
def test_no_hash() -> None:
    body = {key: item for key, item in GOOD.items() if key != "sha256"}
    assert code_of(canonical_bytes(body)) == "bad_hash"


@pytest.mark.spec("DS012")
@pytest.mark.parametrize(
    "text",
    [
        '{"format":2}',
        '{ "format" : 3, "x" : 1.5 }',
        '{"format":2,"sha256":"x"}',
        '{"format":' + "9" * 40 + "}",
    ],
)
def test_a_newer_format_may_look_anyhow(text: str) -> None:
    """What this release does not know, it does not judge: neither spelling nor hash."""
    with pytest.raises(UnsupportedError, match="upgrade deltastore") as caught:
        parse_canonical(text.encode(), "log/7.json")
    assert (caught.value.code, caught.value.where) == ("newer_format", "log/7.json")


@pytest.mark.spec("DS012")
@pytest.mark.parametrize("written", ["2", 0, -1, True, None, [2], {"a": 2}])
def test_a_format_that_is_no_integer_above_is_not_newer(written: Any) -> None:
    data = canonical_bytes({**GOOD, "format": written})
    assert code_of(data) == "bad_hash"
