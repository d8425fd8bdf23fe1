"""What the examples encode with: sections, seals, tables, checksums (SPEC 5, 7, 9, 13)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from spec import decoder

__all__ = ["Json", "crc32c", "o", "plain_grid", "sealed", "section", "signed", "table", "weighted"]

Json = dict[str, Any]


def section(numbers: Sequence[int], width: int) -> bytes:
    """SPEC 9: numbers of ``width`` bits in a bit section."""
    joined = sum(number << width * place for place, number in enumerate(numbers))
    return joined.to_bytes(-(-len(numbers) * width // 32) * 4, "little")


def o(bits: int) -> int:
    """SPEC 6.1: the ordered integer of BF16 bits, modulo 2^16."""
    return int(decoder.ordered(np.array([bits], np.uint64), "BF16")[0])


def signed(value: int, width: int = 16) -> int:
    """A number modulo 2^width as a signed one."""
    return value - 2**width if value >= 2 ** (width - 1) else value


def sealed(fields: Json) -> bytes:
    """SPEC 5: the stored bytes of an object, its ``sha256`` filled in."""
    body = {"format": 1, **fields}
    return decoder.canonical({**body, "sha256": hashlib.sha256(decoder.canonical(body)).hexdigest()})


def plain_grid(stacked: Sequence[int]) -> list[int]:
    """SPEC 7.2: whole axes from the last on, the first that does not fit in nearly equal parts, then 1."""
    chunk: list[int] = []
    room = 2**20
    for extent in reversed(stacked):
        parts = -(-extent // room) if room else extent
        chunk.append(-(-extent // parts) if room else 1)
        room = room // chunk[-1] if parts == 1 else 0
    return chunk[::-1]


def table(tensors: Mapping[str, Sequence[int]], chunks: Mapping[str, Sequence[int]] | None = None) -> bytes:
    """SPEC 7: the table of BF16 tensors, without slabs; ``chunks`` by pattern, else the plain grid."""
    groups: dict[tuple[str, int, tuple[int, ...]], list[tuple[int, ...]]] = {}
    for name, shape in tensors.items():
        pattern, indexes = decoder.split_name(name)
        groups.setdefault((pattern, len(indexes), tuple(shape)), []).append(indexes)
    arrays: list[Json] = []
    for (pattern, _, shape), tuples in sorted(groups.items()):
        arrays.append({"pattern": pattern, "dtype": "BF16", "shape": list(shape)})
        arrays[-1]["members"] = decoder.boxes(sorted(tuples))
        arrays[-1]["chunk"] = list((chunks or {}).get(pattern) or plain_grid([len(tuples), *shape]))
        arrays[-1]["slab"] = {"by": "common", "of": 0, "count": 0}
    return sealed({"kind": "table", "slabs": 0, "arrays": arrays})


def crc32c(data: bytes) -> bytes:
    """SPEC 13: the checksum, as it stands behind the bytes."""
    crc = 0xFFFFFFFF
    for octet in data:
        crc ^= octet
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    return (crc ^ 0xFFFFFFFF).to_bytes(4, "little")


def weighted(name: str, bits: Sequence[int], first: int = 0) -> int:
    """SPEC 8: what elements from index ``first`` on add to the digest."""
    return decoder.digest(name, np.array(bits, np.uint64), first)
