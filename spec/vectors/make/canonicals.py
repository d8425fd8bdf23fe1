"""The canonical form of JSON: SPEC section 5."""

from __future__ import annotations

import json
from typing import Any

from deltastore.format.canonical import canonical_bytes, sha256_hex

Fields = dict[str, Any]

_MOST = 2**53 - 1

_GOOD: dict[str, str] = {
    "an empty object": "{ }",
    "keys by code point": '{"b": 1, "a": 2, "B": 3, "_": 4, "0": 5, "~": 6, "": 7, "aa": 8}',
    "nested objects": '{"z": {"b": [], "a": {}}, "a": [{"d": 1, "c": 2}]}',
    "a list keeps its order": "[3, 1, 2]",
    "literals": "[true, false, null]",
    "integers": f"[0, -1, 10, {_MOST}, {-_MOST}]",
    "the short escapes": '"\\" \\\\ \\/ \\b \\t \\n \\f \\r"',
    "other control characters": '"\\u0000 \\u0001 \\u000B \\u001F"',
    "what needs no escape": '"\\u007f \\u0080 \\u00E9 \\u2028 \\u2029 \\uFEFF \\uFFFF"',
    "beyond the basic plane": '"\\uD83D\\uDE00 \\uDBFF\\uDFFF"',
    "characters are not composed": '"e\\u0301 \\u00e9"',
    "white space everywhere": '\n\t { "a" :\r\n [ 1 , 2 ] } ',
    "nested 16 deep": "[" * 16 + "]" * 16,
    "text of digits": '{"n": "9007199254740993"}',
}

_BAD: dict[str, str] = {
    "a fraction": "[1.5]",
    "a fraction of zero": "[1.0]",
    "an exponent": "[1e2]",
    "an integer beyond 2**53 - 1": f"[{_MOST + 1}]",
    "an integer below 1 - 2**53": f"[{-_MOST - 1}]",
    "a key that is not ASCII": '{"\\u00e9": 1}',
    "a lone surrogate": '"\\ud800"',
    "a lone low surrogate": '"\\udc00 x"',
    "nested 17 deep": "[" * 17 + "]" * 17,
    "no JSON": "{",
    "a single quote": "{'a': 1}",
    "a comment": "[1] // one",
    "nothing": "",
}


def vectors() -> object:
    """A JSON text -> its canonical form and the hash of that; or what is refused."""
    ok = []
    for name, text in _GOOD.items():
        form = canonical_bytes(json.loads(text))
        ok.append(
            {"name": name, "json": text, "canonical": form.decode("latin-1"), "sha256": sha256_hex(form)}
        )
    err = [{"name": name, "json": text, "code": "bad_json", "check": "DS010"} for name, text in _BAD.items()]
    return {"ok": ok, "err": err}
