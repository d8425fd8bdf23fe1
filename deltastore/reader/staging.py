"""Staging: fetch, check and decode whole deltas before the first live element is touched.

SPEC section "Applying a version". What is kept until the apply is six bytes per changed BF16 element.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from deltastore.errors import CorruptError
from deltastore.format.digest import MODULUS, Digester
from deltastore.format.pack import PackIndex, pack_key
from deltastore.format.patch import Patch, check_disjoint
from deltastore.format.records import DeltaRecord, record_key
from deltastore.format.table import TensorTable
from deltastore.reader.pending import PendingBits, StagedPatch
from deltastore.reader.targets import Targets
from deltastore.reader.tied import TiedChanges
from deltastore.replay import checked_index
from deltastore.stores.base import Store
from deltastore.stores.named import fetch_named

__all__ = ["Staged", "stage"]

Positions = np.ndarray[Any, np.dtype[np.uint32]]


@dataclass(frozen=True, slots=True)
class Staged:
    """Deltas ready to be written as one step: every byte fetched and checked, every new bit worked out.

    ``record`` is that of the version they lead to; ``nbytes`` were fetched for them.
    """

    record: DeltaRecord
    patches: tuple[StagedPatch, ...]
    nbytes: int

    @property
    def held_bytes(self) -> int:
        """Memory that the patches take."""
        return sum(patch.positions.nbytes + patch.bits.nbytes for patch in self.patches)

    def apply(self, targets: Targets) -> None:
        """Write every element, then read all of them back. Doing so again changes nothing more.

        ``CorruptError("bad_digest")`` when memory does not hold what was written; the weights are torn then.
        """
        for patch in self.patches:
            targets.scatter(patch.array, patch.box, patch.positions, patch.bits)
        for patch in self.patches:
            if not np.array_equal(targets.gather(patch.array, patch.box, patch.positions), patch.bits):
                raise CorruptError(
                    "bad_digest", f"live memory does not hold version {self.record.version} after the write"
                )


async def stage(
    store: Store,
    table: TensorTable,
    record: DeltaRecord,
    targets: Targets,
    *,
    base_digest: int,
    after: Staged | None = None,
) -> Staged:
    """Fetch and check ``record``'s packs, and work out every new bit.

    ``base_digest``: the digest of the base version, which the live weights will be once ``after`` (deltas
    staged, but not written yet) is written. Every patch's digest difference and the version's digest must
    follow from it. The result takes the place of ``after``, which stays as it is.
    """
    digester, tied = Digester(table), TiedChanges(table, targets.tied)
    pending = PendingBits(targets, () if after is None else after.patches)
    arrived: dict[tuple[int, int], list[Positions]] = {}
    digest = base_digest
    async for index, row, patch in _fetched(store, table, record):
        array, chunk = int(row["array"]), int(row["chunk"])
        box = table.arrays[array].grid.box(chunk)
        others = arrived.setdefault((array, chunk), [])
        others.append(patch.positions)
        if len(others) > 1:
            check_disjoint(others, index.where)
        current = pending.current(array, chunk, box, patch.positions)
        bits = patch.new_bits(current, index.where)
        difference = digester.difference(array, box, patch.positions, current, bits)
        if difference != int(row["difference"]):
            raise _not_the_base(record, table.arrays[array].pattern, chunk, index)
        tied.add(array, box, patch.positions, current, bits)
        pending.put(StagedPatch(array, chunk, box, patch.positions, bits))
        digest = (digest + difference) % MODULUS
    if digest != int(record.digest, 16):
        where = record_key(record.slot)
        raise CorruptError(
            "bad_digest", f"the packs of version {record.version} do not lead to its digest", where=where
        )
    tied.check(record)
    fetched = sum(pack.bytes for pack in record.packs) + (0 if after is None else after.nbytes)
    return Staged(record, pending.patches, fetched)


async def _fetched(
    store: Store, table: TensorTable, record: DeltaRecord
) -> AsyncIterator[tuple[PackIndex, Any, Patch]]:
    """Every patch of every pack, checked. One pack is in memory at a time."""
    for pack in record.packs:
        key = pack_key(record.version, pack.sha256)
        data = await fetch_named(
            store, key, nbytes=pack.bytes, sha256=pack.sha256, named_by=f"version {record.version}"
        )
        index = checked_index(data, record, pack, table)
        whole = memoryview(data)
        for _, row, start, end in index.patches():
            yield index, row, index.read_patch(row, whole[start:end], table)


def _not_the_base(record: DeltaRecord, pattern: str, chunk: int, index: PackIndex) -> CorruptError:
    return CorruptError(
        "bad_digest",
        f"{pattern} chunk {chunk}: the live weights are not those of version {record.base}, which version "
        f"{record.version} builds on; something else wrote to them, or {index.where} is wrong",
        where=index.where,
    )
