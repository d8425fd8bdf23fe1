"""Patches of a stream's element types (SPEC section "Patch"): one at a time, with errors that name the place.

The arithmetic is ``deltastore.kernels.reference.patch``; whole packs go through ``deltastore.kernels.cpu``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from deltastore.errors import CorruptError
from deltastore.format.dtypes import Dtype
from deltastore.kernels.reference import patch as reference
from deltastore.kernels.reference.patch import EncodedPatch, Run, encode_patch
from deltastore.kernels.rows import RULE_OF, Encoding

__all__ = ["EncodedPatch", "Encoding", "Patch", "Run", "check_disjoint", "decode_patch", "encode_patch"]

Bits = np.ndarray[Any, Any]
Positions = np.ndarray[Any, np.dtype[np.uint32]]


@dataclass(frozen=True, slots=True)
class Patch:
    """A decoded patch. ``positions`` are those of all runs one after another (raw: every element)."""

    decoded: reference.DecodedPatch

    @property
    def positions(self) -> Positions:
        """Chunk-relative, uint32."""
        return self.decoded.positions

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs, none where the patch is raw."""
        return self.decoded.runs

    @property
    def raw(self) -> Bits | None:
        """All new bits of a raw patch."""
        return self.decoded.raw

    def new_bits(self, current: Bits, where: str) -> Bits:
        """What to write at ``positions``, given the bits that stand there now.

        Raises ``CorruptError("bad_patch")`` when an offset comes out as -2**(w-1), which is never encoded:
        then ``current`` is neither the base's nor the new value.
        """
        try:
            return self.decoded.new_bits(current)
        except ValueError as error:
            raise _refused(str(error), where) from None

    def apply(self, flat: Bits, where: str) -> None:
        """Write the patch into the chunk's elements in row-major order, in place."""
        flat[self.positions] = self.new_bits(flat[self.positions], where)


def decode_patch(data: memoryview, encoding: int, dtype: Dtype, elements: int, where: str) -> Patch:
    """Read a patch of a chunk of ``elements`` elements; every rule of the format is checked first.

    Raises ``CorruptError("bad_patch")`` naming ``where``. Allocates O(elements) at most.
    """
    try:
        return Patch(reference.decode_patch(data, encoding, dtype, elements))
    except ValueError as error:
        raise _refused(str(error), where) from None


def check_disjoint(parts: Sequence[Positions], where: str) -> None:
    """``CorruptError("bad_patch")`` when patches of one chunk, from several packs, share a position."""
    try:
        reference.check_disjoint(parts)
    except ValueError:
        message = f"{where}: two writers patch one element"
        raise CorruptError("bad_patch", message, where=where, rule="DS045") from None


def _refused(reason: str, where: str) -> CorruptError:
    return CorruptError("bad_patch", f"{where}: {reason}", where=where, rule=RULE_OF[reason])
