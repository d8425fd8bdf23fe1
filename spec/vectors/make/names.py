"""Names and their patterns: SPEC section 7.1."""

from __future__ import annotations

from deltastore.format.names import split_name

NAMES = (
    "model.layers.3.mlp.experts.17.up_proj.weight",
    "lm_head.weight",
    "0",
    "a.0",
    "a.00.b",
    "layers.03.w",
    "x.999999999",
    "x.1000000000",
    "x.12345678901234567890",
    "a.-1.b",
    "a.*.3",
    "1.2.3.4.5.6.7.8",
    "1.2.3.4.5.6.7.8.9",
    "*",
    "a..2",
    "a.1.",
    "gewicht.\u00e4.7",
    "a.\u0663.b",
    "a. 3.b",
)


def vectors() -> object:
    """name -> pattern and index tuple."""
    rows = []
    for name in NAMES:
        pattern, index = split_name(name)
        rows.append({"name": name, "pattern": pattern, "index": list(index)})
    return rows
