"""The examples of names, members, JSON, slabs and digests (SPEC 5 to 8)."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import numpy as np

from spec import decoder
from spec.examples.dumps import listed
from spec.examples.encoders import o, sealed, signed, weighted

__all__ = [
    "CANONICAL",
    "NOT_CANONICAL",
    "TENSORS",
    "digest_text",
    "members_text",
    "names_text",
    "ordered_text",
    "sealed_text",
    "slabs_text",
]


NAMES: Final = (
    "model.layers.3.mlp.experts.17.up_proj.weight",
    "layers.03.w",
    "0",
    "norm.weight",
    "a.*.1",
    "x.1234567890.0",
    "1.2.3.4.5.6.7.8.9",
)

INDEX_TUPLES: Final[tuple[list[tuple[int, ...]], ...]] = (
    [(0,), (1,), (3,)],
    [(0, 0), (0, 1), (1, 0), (1, 1)],
    [(0, 1), (0, 3), (1, 3), (2, 3)],
    [(0, 0), (0, 1), (1, 0)],
    [()],
)

TENSORS: Final = {"layers.0.w": (4, 4), "layers.1.w": (4, 4), "layers.3.w": (4, 4), "norm": (8,)}

CANONICAL: Final = (
    '{"B":2,"a":1,"aa":{},"b":"é … 😀"}',
    r'["\"","\\","/","\b\t\n\f\r","\u0000\u001f"]',
    r"[9007199254740991,-9007199254740991,0,-1,true,false,null,[],{}]",
)

NOT_CANONICAL: Final = (
    ('{"b":1,"a":2}', "keys are not sorted"),
    ('{"a":1, "b":2}', "white space"),
    ('{"a":1,"a":1}', "a key twice"),
    (r'["\u00e9"]', "é needs no escape"),
    (r'["\/"]', "nor does /"),
    (r'["\u000A"]', r"it is \n"),
    (r'["\u001F"]', "lower case: 001f"),
    ("[1.0]", "a fraction"),
    ("[1e3]", "an exponent"),
    ("[-0]", "it is 0"),
    ("[9007199254740992]", "2^53 is out of range"),
    ('{"é":1}', "a key that is not ASCII"),
    ("[NaN]", "no JSON"),
)


def ordered_text() -> str:
    """SPEC 6.1: ordered integers, from below."""
    bits = (0xFFFF, 0xFF80, 0xBF80, 0x8001, 0x8000, 0x0000, 0x0001, 0x3F80, 0x7F80, 0x7FC0)
    names = ["a NaN", "-infinity", "-1.0", "least subnormal, negative", "-0.0"]
    names += ["+0.0", "least subnormal", "1.0", "infinity", "a NaN"]
    return "\n".join(
        f"o({value:04X}) = {signed(o(value)):>6}   {name}" for value, name in zip(bits, names, strict=True)
    )


def names_text() -> str:
    """SPEC 7.1: names, patterns, index tuples."""
    rows = [(name, *decoder.split_name(name)) for name in NAMES]
    wide = max(len(name) for name in NAMES)
    return "\n".join(
        f"{name:<{wide}}  {pattern:<{wide}}  ({', '.join(map(str, indexes))})"
        for name, pattern, indexes in rows
    )


def _plain(value: Any) -> str:
    return str(value).replace(" ", "")


def members_text() -> str:
    """SPEC 7.1: index tuples and their boxes."""
    shown = [" ".join(map(_plain, tuples)).replace(",)", ")") for tuples in INDEX_TUPLES]
    return "\n".join(
        f"{text:<26}  {_plain(decoder.boxes(tuples))}"
        for text, tuples in zip(shown, INDEX_TUPLES, strict=True)
    )


def sealed_text() -> str:
    """SPEC 5: what is hashed, its hash, what is stored."""
    body = {"format": 1, "kind": "epoch", "note": "é\n"}
    hashed = decoder.canonical(body)
    return f"{hashed.decode()}\n{hashlib.sha256(hashed).hexdigest()}\n{sealed(body).decode()}"


SLABS: Final = 4
SLAB_RULES: Final = (
    ("axis", "8 cells along the axis", [1 + cell * SLABS // 8 for cell in range(8)]),
    ("axis", "2 cells along the axis", [1 + cell * SLABS // 2 for cell in range(2)]),
    ("member", "6 experts, count 6", [1 + expert * SLABS // 6 for expert in range(6)]),
)


def slabs_text() -> str:
    """SPEC 7.3: slabs of cells and experts."""
    return "\n".join(f"{by:<7} {what:<23} slabs {listed(found)}" for by, what, found in SLAB_RULES)


def digest_text() -> str:
    """SPEC 8: numbers and digests."""
    lines = [f"mix({x}) = {int(decoder.mix(np.array([x], np.uint64))[0]):016x}" for x in (0, 1)]
    lines += [f"T[{j}] = {int(decoder.T[j]):016x}" for j in (0, 1, 2047)]
    lines += [f'seed("w") = {decoder.seed("w"):016x}']
    lines += [f'w("w", {i}) = {weighted("w", [1], i):016x}' for i in (0, 1, 2, 2048)]
    bits = (0x3F80, 0xBF80, 0x0001)
    lines += [f'digest of "w" = {" ".join(f"{one:04X}" for one in bits)}: {weighted("w", bits):016x}']
    lines += [f'0007 at index 2048 of "w" adds {weighted("w", [7], 2048):016x}']
    return "\n".join(lines)
