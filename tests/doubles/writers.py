"""Packs as several writers make them: disjoint elements of the same chunks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from deltastore.format.digest import MODULUS, Digester
from deltastore.format.pack import Pack, PackBuilder, pack_key
from deltastore.format.patch import encode_patch
from deltastore.format.records import DeltaRecord
from deltastore.format.table import TensorTable
from deltastore.stores.base import Store
from tests.doubles.forging import forge
from tests.doubles.models import Bits

Owner = Callable[[Any], Any]
"""Of the positions of a chunk's changed elements, those that a writer patches, as a mask."""


def chunk_bits(table: TensorTable, model: Bits, array: int, chunk: int) -> Any:
    """A chunk's elements in row-major order."""
    spec = table.arrays[array]
    box = spec.grid.box(chunk)
    names = spec.names[box.start[0] : box.start[0] + box.size[0]]
    return np.stack([model[name][box.slices[1:]] for name in names]).reshape(-1)


def pack_of(table: TensorTable, version: int, old: Bits, new: Bits, owner: Owner) -> tuple[Pack, int]:
    """One writer's pack of what changed between two models, and its digest difference."""
    builder, digester, total = PackBuilder(version, bytes(16)), Digester(table), 0
    for slab, array, chunk in table.chunk_order().tolist():
        before, after = chunk_bits(table, old, array, chunk), chunk_bits(table, new, array, chunk)
        positions = np.flatnonzero(before != after).astype(np.uint32)
        positions = positions[owner(positions)]
        if not len(positions):
            continue
        box = table.arrays[array].grid.box(chunk)
        pair = (before[positions], after[positions])
        patch = encode_patch(table.arrays[array].element, box.elements, positions, *pair, None)
        difference = digester.difference(array, box, positions, *pair)
        builder.add(slab, array, chunk, patch, difference)
        total = (total + difference) % MODULUS
    return builder.finish(), total


async def by_writers(
    store: Store, table: TensorTable, record: DeltaRecord, old: Bits, new: Bits, owners: list[Owner]
) -> None:
    """Rewrite a delta as if each of these owners had made a pack of its part."""
    entries: list[dict[str, Any]] = []
    for owner in owners:
        pack, _ = pack_of(table, record.version, old, new, owner)
        await store.put(pack_key(record.version, pack.sha256), pack.data)
        entries.append(
            {
                "sha256": pack.sha256,
                "bytes": len(pack.data),
                "index_sha256": pack.index_sha256,
                "rows": pack.rows,
                "count": pack.count,
                "slabs": list(pack.slabs),
            }
        )
    size = sum(entry["bytes"] for entry in entries)
    statistics = {**record.statistics.model_dump(), "bytes": size}
    await forge(store, record.slot, packs=entries, writers=len(owners), statistics=statistics)
