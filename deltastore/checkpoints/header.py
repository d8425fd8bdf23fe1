"""The header of a safetensors file: 8 bytes of length, then JSON, then the tensors without gaps.

    {"__metadata__": {...}, "<name>": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end]}, ...}

Offsets count from the end of the header. Every byte after the header belongs to exactly one tensor.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from deltastore.checkpoints.refusal import bad_checkpoint, shown
from deltastore.checkpoints.strict_json import parse_object
from deltastore.errors import InputError
from deltastore.format.dtypes import Dtype, dtype_named
from deltastore.format.limits import MAX_INTEGER, MAX_RANK, NAME_BYTES
from deltastore.format.table import TensorSpec

__all__ = ["HEADER_BYTES", "LENGTH_BYTES", "StoredTensor", "header_bytes", "parse_header"]

HEADER_BYTES: Final = 100_000_000
"""Longest header that the safetensors library reads."""

LENGTH_BYTES: Final = 8
_METADATA: Final = "__metadata__"


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor and where its first byte stands, counted from the end of the header."""

    spec: TensorSpec
    begin: int

    @property
    def end(self) -> int:
        """Just after its last byte."""
        return self.begin + self.spec.nbytes


def parse_header(text: bytes, data_bytes: int, path: Path) -> dict[str, StoredTensor]:
    """The tensors that a header lists, by name, in the order of their data.

    ``text`` is the header's JSON, ``data_bytes`` the length of the rest of the file. Raises
    ``InputError("bad_checkpoint")``, and ``InputError("wrong_dtype")`` for an element type that does not fill
    whole bytes or is not known; both name the file and the tensor.
    """
    fields = parse_object(text, path, "the header")
    metadata = fields.pop(_METADATA, {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise bad_checkpoint(path, "__metadata__ is not a map of text to text; write the file again")
    found = [_stored(name, entry, path) for name, entry in fields.items()]
    found.sort(key=lambda tensor: (tensor.begin, tensor.end))
    _check_cover(found, data_bytes, path)
    return {tensor.spec.name: tensor for tensor in found}


def header_bytes(tensors: Iterable[StoredTensor]) -> bytes:
    """Length and JSON of the header that lists ``tensors``, padded with spaces to a multiple of 8 bytes.

    Raises ``InputError("bad_argument")`` for more than ``HEADER_BYTES``, and for a tensor ``__metadata__``.
    """
    entries: dict[str, object] = {_METADATA: {"format": "pt"}}
    for tensor in tensors:
        if tensor.spec.name == _METADATA:
            message = f"safetensors cannot hold a tensor named {_METADATA}; rename it and make a new stream"
            raise InputError("bad_argument", message, where=_METADATA)
        entries[tensor.spec.name] = {
            "dtype": tensor.spec.dtype.name,
            "shape": list(tensor.spec.shape),
            "data_offsets": [tensor.begin, tensor.end],
        }
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % LENGTH_BYTES)
    if len(text) > HEADER_BYTES:
        message = f"a header of {len(text)} bytes, above {HEADER_BYTES}: give a smaller shard_bytes"
        raise InputError("bad_argument", message)
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def _stored(name: str, entry: Any, path: Path) -> StoredTensor:
    named = f"tensor {shown(name)}"
    if not name or len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES or not _is_unicode(name):
        raise bad_checkpoint(path, f"{named}: a name is 1 to {NAME_BYTES} bytes of UTF-8; rename the tensor")
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        problem = "has not exactly dtype, shape and data_offsets; write the file again"
        raise bad_checkpoint(path, f"{named} {problem}")
    spec = TensorSpec(name, _shape(entry["shape"], named, path), _dtype(entry["dtype"], named, path))
    offsets = entry["data_offsets"]
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(_is_count(at) for at in offsets):
        raise bad_checkpoint(path, f"{named}: data_offsets are not two integers; write the file again")
    begin, end = offsets
    if end - begin != spec.nbytes:
        problem = f"has {end - begin} bytes where its shape and element type need {spec.nbytes}"
        raise bad_checkpoint(path, f"{named} {problem}; write the file again")
    return StoredTensor(spec, begin)


def _shape(value: Any, named: str, path: Path) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > MAX_RANK or not all(_is_count(extent) for extent in value):
        problem = f"{named}: its shape is not up to {MAX_RANK} integers from 0 on; reshape the tensor"
        raise bad_checkpoint(path, problem)
    if math.prod(value) > MAX_INTEGER:
        raise bad_checkpoint(path, f"{named} has more than {MAX_INTEGER} elements; write the file again")
    return tuple(value)


def _dtype(value: Any, named: str, path: Path) -> Dtype:
    try:
        return dtype_named(value if isinstance(value, str) else "")
    except InputError:
        message = (
            f"{shown(str(path), 400)}: {named} has element type {shown(str(value))}, which is not carried"
        )
        raise InputError("wrong_dtype", f"{message}; cast it", where=str(path)) from None


def _check_cover(tensors: list[StoredTensor], data_bytes: int, path: Path) -> None:
    at = 0
    for tensor in tensors:
        if tensor.begin != at:
            fault = "overlaps the tensor before it" if tensor.begin < at else "leaves a hole before it"
            named = f"tensor {shown(tensor.spec.name)}"
            raise bad_checkpoint(path, f"{named} starts at {tensor.begin}, not {at}: {fault}; write it again")
        at = tensor.end
    if at != data_bytes:
        problem = f"its tensors fill {at} bytes, the file has {data_bytes}; copy the file again"
        raise bad_checkpoint(path, problem)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_INTEGER


def _is_unicode(name: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in name)
