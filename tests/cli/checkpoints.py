"""Small checkpoints, written by the few lines below and read back by the safetensors library."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import deserialize

CONFIG = b'{"architectures": ["Small"], "hidden_size": 32}\n'
TOKENIZER = '{"model": {"vocab": {"\u00e9": 0}}}\n'.encode()

NAN_PAYLOADS = (0x7F81, 0xFF81, 0x7FC1, 0xFFFF, 0x7FFF)
NEGATIVE_ZERO = 0x8000


@dataclass(frozen=True)
class Tensor:
    """A tensor as its dtype, shape and bytes."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes


Tensors = dict[str, Tensor]

_SHAPES: dict[str, tuple[str, tuple[int, ...], str]] = {
    "model.embed_tokens.weight": ("BF16", (300, 32), "<u2"),
    "model.layers.0.mlp.weight": ("BF16", (64, 48), "<u2"),
    "model.layers.1.mlp.weight": ("BF16", (64, 48), "<u2"),
    "model.norm.weight": ("F32", (32,), "<u4"),
    "model.scale": ("F8_E4M3", (5, 3), "<u1"),
    "model.steps": ("I64", (), "<u8"),
    "model.unused": ("F16", (0, 4), "<u2"),
}


def first_tensors() -> Tensors:
    """A model of several types and shapes, with every kind of bits in it."""
    draw = np.random.default_rng(7)
    tensors = {}
    for name, (dtype, shape, storage) in _SHAPES.items():
        bits = np.frombuffer(draw.bytes(int(np.prod(shape)) * np.dtype(storage).itemsize), dtype=storage)
        tensors[name] = Tensor(dtype, shape, bits.tobytes())
    return tensors


def with_bits(tensors: Tensors, name: str, changes: dict[int, int]) -> Tensors:
    """The same model with some elements of one tensor replaced, by flat index."""
    old = tensors[name]
    bits = np.frombuffer(old.data, dtype=_SHAPES[name][2]).copy()
    for index, value in changes.items():
        bits[index] = value
    return {**tensors, name: Tensor(old.dtype, old.shape, bits.tobytes())}


def second_tensors() -> Tensors:
    """The next version: a few elements moved, NaN payloads, and zeros that only differ in their sign."""
    first = first_tensors()
    embedding = "model.embed_tokens.weight"
    changed = with_bits(first, embedding, {index * 7: bits for index, bits in enumerate(NAN_PAYLOADS)})
    changed = with_bits(changed, embedding, {1000: NEGATIVE_ZERO, 1001: 0})
    return with_bits(changed, "model.steps", {0: 2**63 + 1})


def third_tensors() -> Tensors:
    """The version after: the zeros change their sign, and every element of a layer changes."""
    changed = with_bits(second_tensors(), "model.embed_tokens.weight", {1000: 0, 1001: NEGATIVE_ZERO})
    return with_bits(changed, "model.layers.1.mlp.weight", {index: index for index in range(64 * 48)})


def write_file(path: Path, tensors: Tensors) -> Path:
    """Write one safetensors file."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, tensor in tensors.items():
        offsets = [len(data), len(data) + len(tensor.data)]
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": offsets}
        data += tensor.data
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def write_folder(folder: Path, tensors: Tensors) -> Path:
    """Write a folder with weights, configuration and tokenizer."""
    folder.mkdir()
    write_file(folder / "model.safetensors", tensors)
    (folder / "config.json").write_bytes(CONFIG)
    (folder / "tokenizer.json").write_bytes(TOKENIZER)
    return folder


def read_file(path: Path) -> Tensors:
    """Read one safetensors file with the library."""
    return {
        name: Tensor(found["dtype"], tuple(found["shape"]), bytes(found["data"]))
        for name, found in deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
    }
