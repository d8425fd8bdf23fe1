"""Staging: fetch, check and decode a whole delta before the first live element is touched.

SPEC section "Applying a version". What is kept until the apply is six bytes per changed BF16 element.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from deltastore.errors import CorruptError
from deltastore.format.digest import MODULUS, Digester
from deltastore.format.grid import Box
from deltastore.format.pack import PackIndex, pack_key
from deltastore.format.patch import Patch, check_disjoint
from deltastore.format.records import DeltaRecord, record_key
from deltastore.format.table import TensorTable
from deltastore.reader.targets import Targets
from deltastore.reader.tied import TiedChanges
from deltastore.replay import checked_index
from deltastore.stores.base import Store
from deltastore.stores.named import fetch_named

__all__ = ["Staged", "StagedPatch", "stage"]

Bits = np.ndarray[Any, Any]
Positions = np.ndarray[Any, np.dtype[np.uint32]]


@dataclass(frozen=True, slots=True)
class StagedPatch:
    """The new bits of one chunk: ``bits`` (k,) go to chunk-relative ``positions`` (k,) of ``box``."""

    array: int
    box: Box
    positions: Positions
    bits: Bits


@dataclass(frozen=True, slots=True)
class Staged:
    """A whole delta, ready to be written: every byte fetched and checked."""

    record: DeltaRecord
    patches: tuple[StagedPatch, ...]
    nbytes: int

    def apply(self, targets: Targets) -> None:
        """Write every element, then read all of them back.

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
    store: Store, table: TensorTable, record: DeltaRecord, targets: Targets, *, base_digest: int | None
) -> Staged:
    """Fetch and check ``record``'s packs and work out every new bit.

    ``base_digest``: the digest of the live weights, which are the base version; every patch's digest
    difference and the version's digest must follow from it. None: the weights are a mixture of the base and
    this very version (a repair), where differences say nothing.
    """
    digester, tied = Digester(table), TiedChanges(table, targets.tied)
    patches: list[StagedPatch] = []
    arrived: dict[tuple[int, int], list[Positions]] = {}
    difference = 0
    async for index, row, patch in _fetched(store, table, record):
        array, chunk = int(row["array"]), int(row["chunk"])
        box = table.arrays[array].grid.box(chunk)
        others = arrived.setdefault((array, chunk), [])
        others.append(patch.positions)
        if len(others) > 1:
            check_disjoint(others, index.where)
        current = targets.gather(array, box, patch.positions)
        bits = patch.new_bits(current, index.where)
        if base_digest is not None:
            found = digester.difference(array, box, patch.positions, current, bits)
            if found != int(row["difference"]):
                raise _not_the_base(record, table.arrays[array].pattern, chunk, index)
        tied.add(array, box, patch.positions, current, bits)
        difference += int(row["difference"])
        patches.append(StagedPatch(array, box, patch.positions, bits))
    if base_digest is not None and (base_digest + difference) % MODULUS != int(record.digest, 16):
        where = record_key(record.slot)
        raise CorruptError(
            "bad_digest", f"the packs of version {record.version} do not lead to its digest", where=where
        )
    tied.check(record)
    return Staged(record, tuple(patches), sum(pack.bytes for pack in record.packs))


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
