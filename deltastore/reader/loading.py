"""Loading a version that is stored whole into live tensors: all of it, or a shard's chunks."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from deltastore.anchors.portion import AnchorPortion, FetchedChunks
from deltastore.anchors.reading import AnchorWeights
from deltastore.errors import CorruptError, DeltastoreError, InputError
from deltastore.format.digest import digest_text
from deltastore.format.records import AnchorRecord
from deltastore.format.table import TensorTable
from deltastore.kernels.cpu import digest_chunks
from deltastore.kernels.pieces import Piece, Pieces
from deltastore.kernels.rows import ChunkList, chunk_list
from deltastore.layout.live_shard import LiveShard
from deltastore.layout.piece_memory import cut_pieces
from deltastore.layout.weights import chunks_of
from deltastore.reader.needed import Needed
from deltastore.reader.standing import Standing, holds
from deltastore.reader.targets import Targets
from deltastore.stores.base import Store

__all__ = ["AnchorPart", "Loaded", "Loader", "Opened"]

_SHARDS: Final = 3
"""Shards of an anchor that are in memory or on their way: one is written while the next ones are fetched."""


Opened = AnchorWeights | AnchorPortion
"""An anchor whose metadata is checked."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A version that is in memory now: ``nbytes`` fetched in ``requests``, ``changed`` elements written."""

    standing: Standing
    nbytes: int
    requests: int
    changed: int


@dataclass(frozen=True, slots=True)
class AnchorPart:
    """What a shard needs of an object of an anchor; ``digests`` (n,): of what it holds of ``chunks`` (n,)."""

    fetched: FetchedChunks
    chunks: ChunkList
    digests: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Loader:
    """Loads anchors into ``targets``. ``needed``: the chunks of a shard; None for all tensors."""

    store: Store
    table: TensorTable
    targets: Targets[Any]
    needed: Needed | None
    threads: int

    async def load(self, record: AnchorRecord, opened: Opened) -> Loaded:
        """Write an anchor, object by object, each checked before any of it is written; read all of it back.

        Raises what fetching does; ``CorruptError("bad_digest")``, or ``InputError("wrong_memory")`` for tied
        tensors that it has apart, when memory then does not hold what it must.
        """
        if isinstance(opened, AnchorWeights):
            loaded = await self._load_all(record, opened)
        else:
            loaded = await self._load_part(record, opened)
        if not holds(self.table, self.targets, self.needed, loaded.standing):
            raise self._wrong(record)
        return loaded

    async def open(self, record: AnchorRecord) -> Opened:
        """Fetch and check inventory and metadata of an anchor; no weights yet."""
        if self.needed is None:
            return await AnchorWeights.open(
                self.store, record.version, record.anchor, self.table, fetches=_SHARDS
            )
        return await AnchorPortion.open(self.store, record.version, record.anchor, self.table)

    async def _load_all(self, record: AnchorRecord, anchor: AnchorWeights) -> Loaded:
        try:
            async for array, _, box, bits in chunks_of(anchor):
                self.targets.write(array, box, bits)
        finally:
            await anchor.close()
        return Loaded(Standing(record), anchor.nbytes, anchor.objects, self.table.elements)

    async def _load_part(self, record: AnchorRecord, anchor: AnchorPortion) -> Loaded:
        needed, shard = self.needed, self.targets.shard
        if needed is None or shard is None:
            raise TypeError("a part of an anchor, for targets that are no shard")
        digests = np.zeros(len(needed), np.uint64)
        nbytes, requests = anchor.opening_bytes, anchor.opening_requests
        async with aclosing(self.parts(anchor)) as parts:
            async for part in parts:
                digests[needed.entries(part.chunks)] = part.digests
                for array, chunk, bits in part.fetched.chunks:
                    self.targets.write(array, self.table.arrays[array].grid.box(chunk), bits)
                nbytes, requests = nbytes + part.fetched.nbytes, requests + part.fetched.requests
        shard.clear_halves()
        found = digest_text(int(digests.sum(dtype=np.uint64)))
        if needed.everything and found != record.digest:
            raise self._wrong(record)
        return Loaded(Standing(record, digests), nbytes, requests, shard.elements)

    async def parts(self, anchor: AnchorPortion) -> AsyncGenerator[AnchorPart, None]:
        """What a shard holds of an anchor, object by object, each fetched and checked."""
        needed, shard = self.needed, self.targets.shard
        if needed is None or shard is None:
            raise TypeError("a part of an anchor, for targets that are no shard")
        async with aclosing(anchor.fetch(needed.chunks, ahead=_SHARDS)) as objects:
            async for fetched in objects:
                chunks, pieces = self._held(fetched, shard)
                yield AnchorPart(fetched, chunks, digest_chunks(pieces, chunks, threads=self.threads))

    def _held(self, fetched: FetchedChunks, shard: LiveShard) -> tuple[ChunkList, Pieces]:
        """The chunks of one object, and what of their bytes the shard holds, once each."""
        chunks = chunk_list(
            [array for array, _, _ in fetched.chunks], [chunk for _, chunk, _ in fetched.chunks]
        )
        pieces: list[Piece] = []
        for array, chunk, bits in fetched.chunks:
            box = self.table.arrays[array].grid.box(chunk)
            pieces += cut_pieces(shard.once, array, box, bits)
        return chunks, Pieces(self.table.kernels, pieces)

    def _wrong(self, record: AnchorRecord) -> DeltastoreError:
        if self.targets.tied:
            names = [self.table.arrays[array].names[member] for array, member in self.targets.tied[0]]
            return InputError(
                "wrong_memory",
                f"tensors {names[0]!r} and {names[1]!r} are one memory here, and do not fit version "
                f"{record.version}, which may have them apart: give each its own and open a new reader",
                where=names[1],
            )
        return CorruptError(
            "bad_digest",
            f"the anchor of version {record.version} does not lead to its digest {record.digest}",
            where=record.anchor.prefix(record.version),
            rule="DS093",
        )
