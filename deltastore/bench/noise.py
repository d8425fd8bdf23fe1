"""A model whose versions are random bits: a delta is as large as the model, and costs little to encode."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

__all__ = ["Noise"]

_ROW: Final = 4096
_ROWS: Final = 1024
_ELEMENT: Final = 2

Bits = np.ndarray[Any, Any]


class Noise:
    """Tensors of two-byte elements, about ``nbytes`` in all, in at most 8 MiB each."""

    def __init__(self, nbytes: int, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed)
        rows = max(nbytes // (_ROW * _ELEMENT), 1)
        self.tensors: dict[str, Bits] = {
            f"layers.{first // _ROWS}.weight": self._drawn(min(_ROWS, rows - first))
            for first in range(0, rows, _ROWS)
        }

    def change_all(self) -> None:
        """New bits everywhere, in place: chunks are stored raw."""
        for bits in self.tensors.values():
            bits[...] = self._drawn(len(bits))

    def change_little(self) -> None:
        """One element of each tensor."""
        for bits in self.tensors.values():
            bits[0, 0] += 1

    def copy(self) -> dict[str, Bits]:
        """The tensors as they are now, in other memory."""
        return {name: bits.copy() for name, bits in self.tensors.items()}

    def _drawn(self, rows: int) -> Bits:
        return np.frombuffer(self._random.bytes(rows * _ROW * _ELEMENT), np.uint16).reshape(rows, _ROW).copy()
