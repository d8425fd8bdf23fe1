"""Checks by replay: every digest difference and every version's digest, recomputed from the weights.

One anchor and the versions that grow from it at a time; of these, one chunk at a time over all versions. So
memory is one shard, the indexes of these versions, and a chunk for each version that others still build on.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from deltastore.anchors.reading import AnchorWeights
from deltastore.errors import CorruptError
from deltastore.format.digest import MODULUS, Digester, digest_text
from deltastore.format.records import AnchorRecord, DeltaRecord, record_key
from deltastore.layout.weights import chunks_of
from deltastore.log import Manifest
from deltastore.replay import DeltaPatches, read_table
from deltastore.stores.base import Store
from deltastore.validate.report import BAD_OBJECT, Findings

__all__ = ["check_by_replay"]

Bits = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Family:
    """An anchor and all deltas that grow from it, in version order."""

    anchor: AnchorRecord
    deltas: tuple[DeltaRecord, ...]


def families(manifests: list[Manifest]) -> list[Family]:
    """Every anchor with its descendants."""
    root: dict[int, int] = {}
    grown: dict[int, list[DeltaRecord]] = {}
    anchors = [record for record in manifests if isinstance(record, AnchorRecord)]
    for record in manifests:
        root[record.version] = root[record.base] if isinstance(record, DeltaRecord) else record.version
        if isinstance(record, DeltaRecord):
            grown.setdefault(root[record.version], []).append(record)
    return [Family(anchor, tuple(grown.get(anchor.version, ()))) for anchor in anchors]


async def check_by_replay(store: Store, manifests: list[Manifest], findings: Findings) -> None:
    """Recompute all digests. Expects manifests whose content has been found sound."""
    for family in families(manifests):
        replay = _Replay(store, family, findings)
        try:
            await replay.run()
        except BAD_OBJECT as error:
            # A patch that does not fit may be sound, and a record before it wrong about its digest.
            for record in replay.misled():
                findings.add(_wrong_digest(record, "its packs lead elsewhere"), record.version)
            findings.add(error, replay.version)


class _Replay:
    def __init__(self, store: Store, family: Family, findings: Findings) -> None:
        self._store = store
        self._family = family
        self._findings = findings
        self._differences: Counter[int] = Counter()
        self.version = family.anchor.version
        """The version being looked at."""
        self._children = Counter(record.base for record in family.deltas)
        self._patches: list[tuple[DeltaRecord, DeltaPatches]] = []

    def misled(self) -> list[DeltaRecord]:
        """The deltas whose digest does not follow from that of their base by what their own indexes say."""
        said = {record.version: int(record.digest, 16) for record, _ in self._patches}
        said[self._family.anchor.version] = int(self._family.anchor.digest, 16)
        return [
            record
            for record, delta in self._patches
            if (said[record.base] + delta.difference) % MODULUS != said[record.version]
        ]

    async def run(self) -> None:
        anchor, deltas = self._family.anchor, self._family.deltas
        table = await read_table(self._store, anchor.table)
        weights = await AnchorWeights.open(self._store, anchor.version, anchor.anchor, table)
        for record in deltas:
            self._patches.append((record, await DeltaPatches.open(self._store, table, record)))
        self._digester = Digester(table)
        total = 0
        async for array, chunk, box, bits in chunks_of(weights):
            total += self._digester.chunk(array, box, bits)
            await self._chunk(array, chunk, bits)
            self.version = anchor.version
            self._findings.advance(bits.nbytes)
        if not self._agrees(anchor, total % MODULUS):
            return
        digests = {anchor.version: total % MODULUS}
        for record in deltas:
            digests[record.version] = (digests[record.base] + self._differences[record.version]) % MODULUS
            if not self._agrees(record, digests[record.version]):
                return

    def _agrees(self, record: Manifest, digest: int) -> bool:
        if digest_text(digest) == record.digest:
            return True
        self._findings.add(_wrong_digest(record, f"it replays to {digest_text(digest)}"), record.version)
        return False

    async def _chunk(self, array: int, chunk: int, bits: Bits) -> None:
        """Carry one chunk through all versions; a version's bits are dropped once nothing builds on them."""
        states = {self._family.anchor.version: bits}
        waiting = self._children.copy()
        for record, delta in self._patches:
            self.version = record.version
            before = states[record.base]
            waiting[record.base] -= 1
            if not waiting[record.base]:
                del states[record.base]
            after = before
            for stored in delta.of(array, chunk):
                after = after.copy() if after is before else after
                said = int(stored.index.rows[stored.row]["difference"])
                if await delta.apply(stored, after) != said:
                    where = stored.index.where
                    message = f"{where}: the digest difference of array {array} chunk {chunk} is wrong"
                    raise CorruptError("bad_digest", message, where=where)
                self._differences[record.version] += said
            if self._children[record.version]:
                states[record.version] = after


def _wrong_digest(record: Manifest, found: str) -> CorruptError:
    where = record_key(record.slot)
    message = f"{where} says that version {record.version} has digest {record.digest}: {found}"
    return CorruptError("bad_digest", message, where=where)
