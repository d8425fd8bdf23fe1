"""Where live weights come from: a dump by the names of tensors or parameters, or a reader's attestation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from deltastore.checkpoints.checkpoint import Checkpoint
from deltastore.checkpoints.reading import CheckpointWeights
from deltastore.errors import CorruptError, InputError
from deltastore.format.attestation import Attestation
from deltastore.format.table import TensorTable
from deltastore.kernels.cpu import digest_chunks
from deltastore.kernels.rows import ChunkList, places_of
from deltastore.layout.coverage import OwnedBox
from deltastore.layout.held import Held
from deltastore.validate.live.report import Apart

__all__ = ["AttestedSource", "CheckpointSource", "Look", "Source", "first_apart"]

Bits = np.ndarray[Any, Any]
Chunks = Mapping[tuple[int, int], Bits]


class Look(Protocol):
    """Some chunks of live weights, at hand."""

    def digests(self) -> NDArray[np.uint64]:
        """The digest of what is held of each chunk: ``(n,)``."""
        ...

    def apart(self, chunks: Chunks, differing: NDArray[np.bool_]) -> Iterator[Apart]:
        """What differs from ``chunks``, the version's; ``differing`` (n,) says where digests do."""
        ...


class Source(Protocol):
    """Live weights under a table."""

    held: Held
    holes: int
    """Elements of parameters that no tensor feeds."""

    copies: int
    """Elements that are compared beside ``held``, which stand there already."""

    def strays(self) -> Iterator[str]:
        """Parameters with elements that are wrong whatever the version; reads them."""
        ...

    async def look(self, chunks: ChunkList) -> Look:
        """Have (n,) chunks at hand, of all of which something is held."""
        ...

    def close(self) -> None:
        """Give up files; may be called more than once."""
        ...


class CheckpointSource:
    """A dump of all tensors by name. Memory: the chunks looked at.

    Raises ``InputError`` for a checkpoint whose tensors are not the table's, naming the first that does not
    fit.
    """

    def __init__(self, name: str, table: TensorTable, checkpoint: Checkpoint) -> None:
        self._name = name
        self._table = table
        self._weights = CheckpointWeights(checkpoint, table)
        self.held = Held(table, None)
        self.holes = self.copies = 0

    def strays(self) -> Iterator[str]:
        """None."""
        return iter(())

    async def look(self, chunks: ChunkList) -> Look:
        """Read chunks."""
        bits = {(array, chunk): await self._weights.read(array, chunk) for array, chunk in chunks.tolist()}
        return _Read(self._name, self.held, chunks, bits)

    def close(self) -> None:
        """The checkpoint is whoever opened it."""


class _Read:
    """Chunks of a checkpoint, in memory."""

    def __init__(self, name: str, held: Held, chunks: ChunkList, bits: Chunks) -> None:
        self._name = name
        self._held = held
        self._chunks = chunks
        self._bits = bits

    def digests(self) -> NDArray[np.uint64]:
        """Of whole chunks."""
        return digest_chunks(self._held.pieces(self._chunks, self._bits), self._chunks)

    def apart(self, chunks: Chunks, differing: NDArray[np.bool_]) -> Iterator[Apart]:  # noqa: ARG002
        """Bit by bit, whatever the digests are; one for each tensor and chunk."""
        for array, chunk in self._chunks.tolist():
            live, stored = self._bits[array, chunk], chunks[array, chunk]
            form = self._held.table.arrays[array]
            box = form.grid.box(chunk)
            for offset in range(box.size[0]):
                found = first_apart(live[offset], stored[offset])
                if found is not None:
                    count, at, values = found
                    index = tuple(low + inner for low, inner in zip(box.start[1:], at, strict=True))
                    yield Apart(self._name, form.names[box.start[0] + offset], None, count, index, *values)


def first_apart(live: Bits, stored: Bits) -> tuple[int, tuple[int, ...], tuple[str, str]] | None:
    """How many elements differ in bits, the index of the first, (live, stored) there; None if none do."""
    other = np.asarray(live != stored)
    count = int(other.sum())
    if not count:
        return None
    at = tuple(int(here) for here in np.unravel_index(int(other.argmax()), other.shape)) if other.ndim else ()
    digits = 2 * stored.dtype.itemsize
    return count, at, (f"{int(live[at]):0{digits}x}", f"{int(stored[at]):0{digits}x}")


class AttestedSource:
    """What a reader says that its memory holds.

    Raises ``InputError("bad_argument")`` for an attestation of another table, ``CorruptError`` for one
    that cannot be true of any reader.
    """

    def __init__(self, name: str, table: TensorTable, attestation: Attestation) -> None:
        if attestation.table != table.sha256:
            raise InputError(
                "bad_argument",
                f"{name} is about other tensors than those of the version: give a version with tensor table "
                f"{attestation.table[:12]}",
                where=name,
            )
        self._name = name
        self._astray = attestation.astray
        self.holes = self.copies = 0
        boxes = attestation.boxes
        try:
            self.held = Held(
                table, None if boxes is None else [OwnedBox(one.array, one.start, one.size) for one in boxes]
            )
            count = len(self.held.chunks)
        except InputError as error:
            raise CorruptError("bad_json", f"{name}: {error}", where=name, rule="DS013") from None
        if count != len(attestation.digests):
            message = f"{name} has {len(attestation.digests)} digests, for {count} chunks"
            raise CorruptError("bad_json", message, where=name, rule="DS013")
        self._digests = np.array([int(digest, 16) for digest in attestation.digests], np.uint64)
        self._places = places_of(self.held.chunks)

    def strays(self) -> Iterator[str]:
        """As the reader found them."""
        return iter(self._astray)

    async def look(self, chunks: ChunkList) -> Look:
        """The digests of chunks."""
        at = np.searchsorted(self._places, places_of(chunks))
        return _Said(self._name, self.held, chunks, self._digests[at], self.held.counts[at])

    def close(self) -> None:
        """Nothing is open."""


class _Said:
    """Digests of chunks that somebody else computed."""

    def __init__(
        self,
        name: str,
        held: Held,
        chunks: ChunkList,
        digests: NDArray[np.uint64],
        counts: NDArray[np.int64],
    ) -> None:
        self._name = name
        self._held = held
        self._chunks = chunks
        self._digests = digests
        self._counts = counts

    def digests(self) -> NDArray[np.uint64]:
        """As they were said."""
        return self._digests

    def apart(self, chunks: Chunks, differing: NDArray[np.bool_]) -> Iterator[Apart]:  # noqa: ARG002
        """The chunks whose digests differ."""
        for at in np.flatnonzero(differing).tolist():
            array, chunk = (int(number) for number in self._chunks[at])
            form = self._held.table.arrays[array]
            box = form.grid.box(chunk)
            tensor, count = form.names[box.start[0]], int(self._counts[at])
            yield Apart(self._name, tensor, None, count, box.start[1:], chunk=chunk)
