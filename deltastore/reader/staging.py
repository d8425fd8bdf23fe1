"""Staging: fetch, check and decode whole deltas before the first live element is touched.

SPEC section "Applying a version".
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import CorruptError, PatchError
from deltastore.format.digest import MODULUS
from deltastore.format.pack import PackIndex, pack_key
from deltastore.format.records import DeltaRecord, record_key
from deltastore.format.table import TensorTable
from deltastore.kernels.rows import Octets
from deltastore.reader.targets import Step, Targets
from deltastore.replay import checked_index
from deltastore.stores.base import Store
from deltastore.stores.named import fetch_named

__all__ = ["Staged", "stage"]


@dataclass(frozen=True, slots=True)
class Staged:
    """Deltas ready to be written as one step: every byte fetched and checked, every new bit worked out.

    ``record`` is that of the version they lead to; ``nbytes`` were fetched for them.
    """

    record: DeltaRecord
    step: Step
    nbytes: int

    def apply(self) -> None:
        """Write every element, then read all of them back. Doing so again changes nothing more.

        ``CorruptError("bad_digest")`` when memory does not hold what was written; the weights are torn then.
        """
        self.step.write()
        if self.step.mismatches():
            raise CorruptError(
                "bad_digest", f"live memory does not hold version {self.record.version} after the write"
            )


async def stage(
    store: Store,
    table: TensorTable,
    record: DeltaRecord,
    targets: Targets[Any],
    *,
    base_digest: int,
    after: Staged | None = None,
) -> Staged:
    """Fetch and check ``record``'s packs, and work out every new bit.

    ``base_digest``: the digest of the base version, which the live weights will be once ``after`` (deltas
    staged, but not written yet) is written. Every patch's digest difference and the version's digest must
    follow from it. The result takes the place of ``after``, which stays as it is.
    """
    under = None if after is None else after.step
    parts: list[Step] = []
    digest = base_digest
    async for index, body in _fetched(store, table, record):
        part, differences = _resolved(table, record, targets, under, index, body)
        parts.append(part)
        digest = (digest + int(differences.sum(dtype=np.uint64))) % MODULUS
    step = targets.join(parts, under, record)
    if digest != int(record.digest, 16):
        where = record_key(record.slot)
        raise CorruptError(
            "bad_digest", f"the packs of version {record.version} do not lead to its digest", where=where
        )
    fetched = sum(pack.bytes for pack in record.packs) + (0 if after is None else after.nbytes)
    return Staged(record, step, fetched)


async def _fetched(
    store: Store, table: TensorTable, record: DeltaRecord
) -> AsyncIterator[tuple[PackIndex, Octets]]:
    """Every pack, with its index and hashes checked. One is in memory at a time."""
    for pack in record.packs:
        key = pack_key(record.version, pack.sha256)
        data = await fetch_named(
            store, key, nbytes=pack.bytes, sha256=pack.sha256, named_by=f"version {record.version}"
        )
        index = checked_index(data, record, pack, table)
        yield index, index.body(memoryview(data), table)


def _resolved(
    table: TensorTable,
    record: DeltaRecord,
    targets: Targets[Any],
    under: Step | None,
    index: PackIndex,
    body: Octets,
) -> tuple[Step, NDArray[np.uint64]]:
    try:
        part, differences = targets.resolve(index.rows, body, under)
    except PatchError as error:
        raise index.named(error, table) from None
    wrong = np.flatnonzero(differences != index.rows["difference"])
    if len(wrong):
        row = index.rows[wrong[0]]
        pattern, chunk = table.arrays[int(row["array"])].pattern, int(row["chunk"])
        raise CorruptError(
            "bad_digest",
            f"{pattern} chunk {chunk}: the live weights are not those of version {record.base}, which "
            f"version {record.version} builds on; something else wrote to them, or {index.where} is wrong",
            where=index.where,
        )
    return part, differences
