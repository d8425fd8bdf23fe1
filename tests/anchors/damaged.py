"""An anchor to be damaged object by object."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from deltastore.anchors import AnchorWeights
from deltastore.errors import DeltastoreError
from deltastore.format.inventory import Inventory, InventoryObject
from deltastore.format.records import AnchorRef
from deltastore.stores.memory import MemoryStore
from tests.anchors.models import HeldWeights, tensors_of

MEBIBYTE = 1 << 20

Metadata = dict[str, Any]
Change = Callable[[bytes], bytes]
Edit = Callable[[Metadata], object]


class Anchor:
    """One anchor of three shards in memory, to be damaged object by object."""

    def __init__(self, store: MemoryStore, weights: HeldWeights, ref: AnchorRef) -> None:
        self.store = store
        self.weights = weights
        self.ref = ref

    def key(self, name: str) -> str:
        return self.ref.prefix(1) + name

    async def get(self, name: str) -> bytes:
        return await self.store.get(self.key(name), limit=MEBIBYTE)

    async def put(self, name: str, data: bytes) -> None:
        await self.store.put(self.key(name), data)

    async def change(self, name: str, change: Change) -> None:
        await self.put(name, change(await self.get(name)))

    async def edit(self, name: str, edit: Edit) -> None:
        """Change a metadata object, and let the inventory and the record agree to it."""
        fields = json.loads(await self.get(name))
        edit(fields)
        await self.put(name, json.dumps(fields).encode())
        await self.seal_again()

    async def seal_again(self, *, without: str | None = None, extra: str | None = None) -> None:
        """Name what is in the store now, as an attacker who owns the writer's place could."""
        entries = []
        async for info in self.store.list(self.ref.prefix(1)):
            name = info.key.removeprefix(self.ref.prefix(1))
            if name not in ("inventory.json", without):
                data = await self.get(name)
                sha256 = hashlib.sha256(data).hexdigest()
                entries.append(InventoryObject(key=name, bytes=len(data), sha256=sha256))
        if extra is not None:
            entries.append(InventoryObject(key=extra, bytes=0, sha256="0" * 64))
        inventory = Inventory.seal_new(objects=tuple(sorted(entries, key=lambda entry: entry.key)))
        await self.take(inventory.to_bytes(), inventory.sha256)

    async def take(self, data: bytes, sha256: str) -> None:
        await self.put("inventory.json", data)
        self.ref = AnchorRef(attempt=self.ref.attempt, inventory_sha256=sha256, inventory_bytes=len(data))

    async def read(self) -> dict[str, np.ndarray[Any, Any]]:
        anchor = await AnchorWeights.open(self.store, 1, self.ref, self.weights.table)
        return await tensors_of(anchor)

    async def refused(self) -> DeltastoreError:
        with pytest.raises(DeltastoreError) as caught:
            await self.read()
        assert "\n" not in str(caught.value)
        return caught.value
