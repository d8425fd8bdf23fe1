"""Staging: fetch, check and decode whole deltas before the first live element is touched.

SPEC section "Applying a version".
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import CorruptError, PatchError
from deltastore.format.digest import MODULUS
from deltastore.format.pack import PackIndex, pack_key
from deltastore.format.records import DeltaRecord, PackRef, record_key
from deltastore.format.table import TensorTable
from deltastore.kernels.rows import Octets
from deltastore.reader.targets import Step, Targets
from deltastore.replay import checked_index
from deltastore.stores.base import Store
from deltastore.stores.named import fetch_named

__all__ = ["Staged", "stage"]

_FETCHES: Final = 3
"""Packs on their way or in memory at once: a distant store answers one while another is decoded."""


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
    async with aclosing(_fetched(store, table, record)) as packs:
        async for index, body in packs:
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
) -> AsyncGenerator[tuple[PackIndex, Octets], None]:
    """Every pack in turn, with its index and hashes checked. A few are fetched ahead, and in memory."""
    waiting = iter(record.packs)
    running: deque[tuple[PackRef, asyncio.Task[bytes]]] = deque()
    try:
        while True:
            for pack in islice(waiting, _FETCHES - len(running)):
                running.append((pack, asyncio.create_task(_fetch(store, record, pack))))
            if not running:
                return
            pack, task = running.popleft()
            data = await task
            index = checked_index(data, record.version, pack, table)
            yield index, index.body(memoryview(data), table)
    finally:
        for _, task in running:
            task.cancel()
        await asyncio.gather(*(task for _, task in running), return_exceptions=True)


async def _fetch(store: Store, record: DeltaRecord, pack: PackRef) -> bytes:
    key = pack_key(record.version, pack.sha256)
    named_by = f"version {record.version}"
    return await fetch_named(store, key, nbytes=pack.bytes, sha256=pack.sha256, named_by=named_by)


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
