"""SPEC 8: the digest of weights."""

from __future__ import annotations

import hashlib

import numpy as np

from spec.decoder.elements import U64
from spec.decoder.table import Array


def mix(x: U64) -> U64:
    """Mix the bits of a number, modulo 2^64."""
    z = x + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


T: U64 = mix(np.uint64(0x64656C746173746F) + np.arange(2048, dtype=np.uint64)) | np.uint64(1)


def seed(name: str) -> int:
    """The factor of a tensor."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") | 1


def factors(name: str, index: U64) -> U64:
    """w(s, i) for row-major indexes of elements of a tensor."""
    block = mix(index // np.uint64(2048)) | np.uint64(1)
    return T[(index % np.uint64(2048)).astype(np.int64)] * block * np.uint64(seed(name))


def digest(name: str, bits: U64, first: int = 0) -> int:
    """What the elements from index `first` of a tensor on add to the digest."""
    return int((bits * factors(name, np.arange(first, first + len(bits), dtype=np.uint64))).sum())


def box_factors(array: Array, box: tuple[slice, ...]) -> U64:
    """w for every position of a chunk."""
    index = np.zeros(1, dtype=np.uint64)
    for axis, extent in zip(box[1:], array.shape, strict=True):
        along = np.arange(axis.start, axis.stop, dtype=np.uint64)
        index = (index[:, None] * np.uint64(extent) + along).reshape(-1)
    return np.concatenate([factors(name, index) for name in array.names()[box[0]]])
