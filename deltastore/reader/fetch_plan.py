"""What a reader of a part fetches of a delta: which packs, which index ranges, which patches, which bytes.

A plan follows from the manifest, the indexes of the packs that hold anything needed, and the layout alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from deltastore.anchors.in_order import in_order
from deltastore.errors import CorruptError
from deltastore.format.pack import PackIndex, index_bytes
from deltastore.format.records import DeltaRecord, PackRef, record_key
from deltastore.kernels.rows import chunks_of
from deltastore.reader.needed import Needed
from deltastore.replay import fetch_pack_index
from deltastore.stores.base import Store
from deltastore.stores.ranges import coalesced

__all__ = ["FetchPlan", "PackPlan", "check_slabs", "plan_delta", "plan_pack", "takes_index"]

_SMALL_BYTES: Final = 64 << 10
"""Packs up to here are fetched whole: the second request would take longer than all of their bytes."""

_GAP_BYTES: Final = 32 << 10
"""Patches this close are one range. A request costs a store what some hundred KiB do, but what lies between
is wasted by every reader of a fleet; so the gap is a small part of a pack of tens of MiB."""

_RANGES: Final = 3
"""Most ranges of patches fetched of one pack: with its index, four requests."""


@dataclass(frozen=True, slots=True)
class PackPlan:
    """What is fetched of one pack.

    ``whole``: all of it, in one request. Else ``rows`` (k,) are the numbers of the needed patches, and
    ``ranges`` the bytes (start, end) of the object that hold them. ``needed_bytes``: of needed patches.
    ``index_bytes``: of header and index, if fetched. ``requests`` and ``nbytes``: for all of it.
    """

    pack: PackRef
    whole: bool
    rows: NDArray[np.int64]
    ranges: tuple[tuple[int, int], ...]
    needed_bytes: int
    index_bytes: int
    requests: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """What is fetched of one delta, pack by pack."""

    record: DeltaRecord
    packs: tuple[PackPlan, ...]

    @property
    def requests(self) -> int:
        """Requests, beside those for the log."""
        return sum(pack.requests for pack in self.packs)

    @property
    def nbytes(self) -> int:
        """Bytes fetched."""
        return sum(pack.nbytes for pack in self.packs)

    @property
    def needed_bytes(self) -> int:
        """Bytes of the patches that are needed: the exact share, without indexes."""
        return sum(pack.needed_bytes for pack in self.packs)

    @property
    def index_bytes(self) -> int:
        """Bytes of headers and indexes among those fetched."""
        return sum(pack.index_bytes for pack in self.packs)

    @property
    def total_bytes(self) -> int:
        """Bytes of all packs of the delta."""
        return sum(pack.bytes for pack in self.record.packs)


def check_slabs(record: DeltaRecord, needed: Needed) -> None:
    """``CorruptError("bad_index")`` for a pack of slabs that the table does not have.

    Who leaves a pack out sees no more of it than what its manifest says.
    """
    for pack in record.packs:
        if pack.slabs[1] > needed.table.slabs:
            where = record_key(record.slot)
            first, last = pack.slabs
            problem = f"a pack of slabs {first} to {last}, where the table has {needed.table.slabs}"
            raise CorruptError("bad_index", f"{where} names {problem}", where=where, rule="DS061")


def takes_index(pack: PackRef, needed: Needed) -> bool:
    """Whether the index of a pack is fetched by itself, before anything else of it is."""
    if not needed.some_of(pack.slabs) or pack.bytes <= _SMALL_BYTES:
        return False
    return not needed.all_of(pack.slabs)


def plan_pack(pack: PackRef, index: PackIndex | None, needed: Needed) -> PackPlan:
    """What is fetched of a pack; ``index`` may be left out where no part of it is needed.

    Of a pack that is fetched whole, ``index`` says which patches are needed.
    """
    nothing = np.zeros(0, np.int64)
    if index is None or not needed.some_of(pack.slabs):
        return PackPlan(pack, False, nothing, (), 0, 0, 0, 0)
    front = index_bytes(pack.rows)
    rows = np.flatnonzero(needed.entries(chunks_of(index.rows)) >= 0)
    starts, ends = index.offsets[rows], index.offsets[rows + 1]
    share = int((ends - starts).sum())
    if not takes_index(pack, needed):
        return PackPlan(pack, True, rows, ((0, pack.bytes),), share, front, 1, pack.bytes)
    ranges = tuple(coalesced(starts, ends, gap=_GAP_BYTES, most=_RANGES))
    nbytes = front + sum(end - start for start, end in ranges)
    return PackPlan(pack, False, rows, ranges, share, front, 1 + len(ranges), nbytes)


async def plan_delta(store: Store, record: DeltaRecord, needed: Needed) -> FetchPlan:
    """The plan of a delta. Fetches the indexes of packs that may hold something needed, and no patches."""

    check_slabs(record, needed)

    async def plan(pack: PackRef) -> PackPlan:
        index = None
        if needed.some_of(pack.slabs):
            index = await fetch_pack_index(store, record.version, pack, needed.table)
        return plan_pack(pack, index, needed)

    plans = [one async for one in in_order(record.packs, plan, ahead=3)]
    return FetchPlan(record, tuple(plans))
