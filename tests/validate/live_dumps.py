"""Dumps of live weights as files, written by hand: any bits under any names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deltastore.format.dtypes import DTYPES
from deltastore.layout.memory import bits_of, element_type

__all__ = ["dump"]


def dump(path: Path, tensors: Mapping[str, Any], dtypes: Mapping[str, str] | None = None) -> Path:
    """A safetensors file with these tensors."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header: dict[str, Any] = {}
    data = b""
    named = {name: (dtypes or {}).get(name) or element_type(name, one).name for name, one in tensors.items()}
    for name in sorted(tensors, key=lambda one: (-DTYPES[named[one]].itemsize, one)):
        octets = bits_of(name, tensors[name]).tobytes()
        header[name] = {
            "dtype": named[name],
            "shape": list(tensors[name].shape),
            "data_offsets": [len(data), len(data) + len(octets)],
        }
        data += octets
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path
