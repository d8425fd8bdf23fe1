"""The demo's own measure of the truth must see every bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from deltastore.demo.bits import bf16_bits, differing_tensors, fingerprint, write_bits

Bits = np.ndarray[Any, Any]


def bf16(*bits: int) -> Bits:
    return np.array(bits, np.uint16)


def test_fp32_is_rounded_to_nearest_even_into_memory_of_its_own() -> None:
    ulp = 2.0**-7
    weights = torch.tensor([1.0, 1.0 + ulp / 2, 1.0 + 3 * ulp / 2, -0.0], requires_grad=True)
    bits = bf16_bits({"w": weights})["w"]
    assert bits.tolist() == [0x3F80, 0x3F80, 0x3F82, 0x8000]
    with torch.no_grad():
        weights.zero_()
    assert bits.tolist() == [0x3F80, 0x3F80, 0x3F82, 0x8000]


def test_bf16_keeps_every_pattern() -> None:
    patterns = np.arange(2**16, dtype=np.uint16)
    weights = torch.from_numpy(patterns.view(np.int16)).view(torch.bfloat16)
    assert (bf16_bits({"w": weights})["w"] == patterns).all()


BASE = {"a": bf16(0, 0x7FC0), "b": bf16(1)}


@pytest.mark.parametrize(
    "other",
    [
        {"a": bf16(0x8000, 0x7FC0), "b": bf16(1)},
        {"a": bf16(0, 0x7FC1), "b": bf16(1)},
        {"a": bf16(0, 0x7FC0), "c": bf16(1)},
        {"a": bf16(0), "b": bf16(0x7FC0, 1)},
        {"a": bf16(0, 0x7FC0).reshape(2, 1), "b": bf16(1)},
        {"a": bf16(0, 0x7FC0)},
    ],
    ids=["minus zero", "NaN payload", "name", "border", "shape", "missing"],
)
def test_a_fingerprint_tells(other: dict[str, Bits]) -> None:
    assert fingerprint(other) != fingerprint(BASE)


def test_a_fingerprint_does_not_depend_on_order_or_strides() -> None:
    wide = np.arange(12, dtype=np.uint16).reshape(3, 4)
    assert fingerprint({"b": wide.T, "a": bf16(9)}) == fingerprint({"a": bf16(9), "b": wide.T.copy()})


def test_written_bits_are_compared_tensor_by_tensor(tmp_path: Path) -> None:
    path = tmp_path / "bits"
    bits = {"b": np.arange(6, dtype=np.uint16).reshape(2, 3).T, "a": bf16(0x8000)}
    write_bits(bits, path)
    assert path.read_bytes() == b"\x00\x80" + bits["b"].tobytes()
    assert differing_tensors(bits, path) == []
    assert differing_tensors({**bits, "a": bf16(0)}, path) == ["a"]
    assert differing_tensors({**bits, "b": bits["b"] + bf16(1)}, path) == ["b"]


def test_a_file_of_another_length_differs(tmp_path: Path) -> None:
    path = tmp_path / "bits"
    write_bits({"a": bf16(1, 2)}, path)
    assert differing_tensors({"a": bf16(1, 2, 3)}, path) == ["a"]
    assert differing_tensors({"a": bf16(1)}, path) == ["bytes after the last tensor"]
