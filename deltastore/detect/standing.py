"""What stands published, without a copy: its digests, and what leads back to it (SPEC section "Digest").

The *certificate* is the digest of every block of at most 2048 elements. Old bits that have it are the
published ones; whatever they were worked out from is not trusted beyond that.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deltastore.detect.laid import Bits, Laid
from deltastore.errors import PatchError
from deltastore.kernels.blocks import Blocks
from deltastore.kernels.cpu import apply, digest_blocks
from deltastore.kernels.pieces import KernelTable, Pieces
from deltastore.kernels.rows import EncodedPatches, offsets_of

__all__ = ["Flags", "Recalled", "Standing", "fill_blocks", "joined"]

Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Recalled:
    """What is ``laid`` now and at an earlier moment, element for element, in ``new`` and ``old`` (n,).

    ``digests`` (B,) are those of ``new``. ``known`` (B,): ``old`` has the digest of that moment.
    """

    laid: Laid
    new: Bits
    old: Bits
    digests: NDArray[np.uint64]
    known: Flags


def joined(parts: Sequence[Recalled], laid: Laid, new: Bits, old: Bits) -> Recalled:
    """Parts of one batch, one after another in ``new`` and ``old``; ``laid`` has all their boxes."""
    return Recalled(
        laid,
        new[: laid.elements],
        old[: laid.elements],
        np.concatenate([part.digests for part in parts]),
        np.concatenate([part.known for part in parts]),
    )


class Standing:
    """A version, or what may become one: the certificate, and first-touch old values kept sparsely.

    ``digests`` (B,) uint64. ``patches``: for each batch None, or what turns its bits at the last moment that
    was looked at into those of the version; so an element that has not changed since takes no memory.
    """

    def __init__(self, digests: NDArray[np.uint64], batches: int) -> None:
        self.digests = digests
        self.patches: list[EncodedPatches | None] = [None] * batches

    @property
    def digest(self) -> int:
        """The digest of all blocks, mod 2**64."""
        return int(self.digests.sum(dtype=np.uint64))

    @property
    def nbytes(self) -> int:
        """Memory of the old values that are kept."""
        return sum(kept.rows.nbytes + kept.body.nbytes for kept in self.patches if kept is not None)

    def rebuild(
        self, table: KernelTable, number: int, recalled: Recalled, before: NDArray[np.uint64], room: Bits
    ) -> tuple[Bits, Flags]:
        """The version's bits of batch ``number``, and which blocks (B,) nothing explains.

        ``before`` (all blocks): the certificate of the moment that ``recalled.old`` is of. The bits are
        ``room`` (n,) or ``recalled.old``; those of an unexplained block mean nothing.
        """
        blocks, wanted = recalled.laid.blocks, self.digests[recalled.laid.numbers]
        kept = self.patches[number]
        if kept is None:
            bits = recalled.old
            explained = recalled.known & (before[recalled.laid.numbers] == wanted)
        else:
            bits = room
            bits[:] = recalled.old
            _apply_what_fits(recalled.laid.over(table, bits), kept)
            explained = digest_blocks(blocks, bits) == wanted
        same = (recalled.digests == wanted) & ~explained
        fill_blocks(blocks, bits, same, recalled.new)
        return bits, ~(explained | same)


def fill_blocks(blocks: Blocks, bits: Bits, chosen: Flags, source: Bits) -> None:
    """Write ``source`` (n,) into ``bits`` (n,) in the ``chosen`` (B,) blocks."""
    if chosen.any():
        here = np.repeat(chosen, np.diff(blocks.starts))
        np.copyto(bits[: blocks.elements], source[: blocks.elements], where=here)


def _apply_what_fits(pieces: Pieces, kept: EncodedPatches) -> None:
    """Apply ``kept``; a patch that does not fit is left out: its chunk was not recalled rightly."""
    try:
        apply(pieces, kept.rows, kept.body)
        return
    except PatchError:
        offsets = offsets_of(kept.rows)
    for row in range(len(kept.rows)):
        with suppress(PatchError):
            apply(pieces, kept.rows[row : row + 1], kept.body[offsets[row] : offsets[row + 1]])
