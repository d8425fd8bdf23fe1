"""Patches of one window, fetched by byte ranges of packs and checked against their rows."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from deltastore.anchors.in_order import in_order
from deltastore.errors import CorruptError
from deltastore.format.pack import patch_check, refused_patch
from deltastore.format.table import TensorTable
from deltastore.kernels.rows import Octets, Rows
from deltastore.stores.base import Store
from deltastore.stores.named import fetch_range
from deltastore.stores.ranges import coalesced

__all__ = ["Batch", "FetchedBatch", "bad_row", "batches_of", "check_hashes", "fetch_batch"]

_GAP_BYTES: Final = 256 << 10
"""Patches this close are one range: a request to a distant store costs about what so many bytes do."""

_BATCH_BYTES: Final = 4 << 20
_BATCH_ELEMENTS: Final = 1 << 21
"""A batch has about so many bytes, and writes about so many elements: each takes six bytes when staged."""

_RANGES: Final = 4
"""Ranges of one batch on their way at once."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Patches of one pack: ``rows`` (n,) of dtype ``PLACED``; ``ranges`` (start, end) hold their bytes."""

    step: int
    pack: int
    rows: Rows
    ranges: tuple[tuple[int, int], ...]

    @property
    def nbytes(self) -> int:
        """Bytes to fetch."""
        return sum(end - start for start, end in self.ranges)


@dataclass(frozen=True, slots=True)
class FetchedBatch:
    """A batch and its patches, one after another, not checked yet. ``failure``: why they are not there."""

    batch: Batch
    body: Octets
    failure: CorruptError | None = None

    def patches(self) -> Iterator[tuple[Any, Octets]]:
        """(row, of dtype ``PLACED``, bytes) of each patch."""
        at = 0
        for row in self.batch.rows:
            end = at + int(row["length"])
            yield row, self.body[at:end]
            at = end


async def batches_of(pieces: Iterator[Rows], skips: Callable[[int], bool]) -> AsyncGenerator[Batch, None]:
    """Rows of a window, in batches. Steps that ``skips`` are left out."""
    while (rows := await asyncio.to_thread(next, pieces, None)) is not None:
        ends = rows["offset"].astype(np.int64) + rows["length"]
        gaps = np.zeros(len(rows), np.int64)
        gaps[1:] = rows["offset"][1:].astype(np.int64) - ends[:-1]
        apart = (np.diff(rows["step"].astype(np.int64)) != 0) | (np.diff(rows["pack"].astype(np.int64)) != 0)
        gaps[1:][apart | (gaps[1:] > _GAP_BYTES)] = 0
        sizes = np.cumsum(rows["length"].astype(np.int64) + gaps) // _BATCH_BYTES
        counts = np.cumsum(rows["count"].astype(np.int64)) // _BATCH_ELEMENTS
        cut = apart | (np.diff(sizes) != 0) | (np.diff(counts) != 0)
        cuts = [0, *(np.flatnonzero(cut) + 1).tolist(), len(rows)]
        for start, end in itertools.pairwise(cuts):
            step = int(rows["step"][start])
            if start < end and not skips(step):
                starts = rows["offset"][start:end].astype(np.int64)
                ranges = tuple(coalesced(starts, ends[start:end], gap=_GAP_BYTES))
                yield Batch(step, int(rows["pack"][start]), rows[start:end], ranges)


async def fetch_batch(store: Store, batch: Batch, key: str, version: int) -> FetchedBatch:
    """The patches of a batch out of pack ``key`` of ``version``; what is wrong with it is not raised."""

    async def fetch(span: tuple[int, int]) -> bytes:
        start, end = span
        return await fetch_range(store, key, start, end - start, named_by=f"version {version}", rule="DS061")

    try:
        async with aclosing(in_order(batch.ranges, fetch, ahead=_RANGES)) as fetched:
            parts = [np.frombuffer(part, np.uint8) async for part in fetched]
    except CorruptError as error:
        return FetchedBatch(batch, np.zeros(0, np.uint8), error)
    return FetchedBatch(batch, _body(batch, parts))


def _body(batch: Batch, parts: list[Octets]) -> Octets:
    """The patches one after another, without what lies between them."""
    lengths = batch.rows["length"].astype(np.int64)
    total = int(lengths.sum())
    if len(parts) == 1 and len(parts[0]) == total:
        return parts[0]
    body = np.empty(total, np.uint8)
    firsts = np.array([start for start, _ in batch.ranges], np.int64)
    offsets = batch.rows["offset"].astype(np.int64)
    held = np.searchsorted(firsts, offsets, "right") - 1
    at = 0
    for part, start, length in zip(
        held.tolist(), (offsets - firsts[held]).tolist(), lengths.tolist(), strict=True
    ):
        body[at : at + length] = parts[part][start : start + length]
        at += length
    return body


def check_hashes(fetched: FetchedBatch, key: str, table: TensorTable) -> None:
    """Each patch against its row; ``CorruptError("bad_hash")`` for the first that differs (SPEC DS044)."""
    for row, data in fetched.patches():
        if patch_check(data.data) != bytes(row["check"]):
            raise bad_row("bad_hash", "DS044", row, key, table, " does not match its hash")


def bad_row(code: str, rule: str, row: Rows, key: str, table: TensorTable, problem: str) -> CorruptError:
    """The error for one patch, with the names of pack, array and chunk; ``row`` of dtype ``PLACED``."""
    return refused_patch(code, rule, row, table, key, int(row["offset"]), problem)
