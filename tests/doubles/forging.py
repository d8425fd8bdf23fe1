"""Records as an attacker writes them: any field, sealed again, and the rest of the chain sealed after it."""

from __future__ import annotations

import json
from typing import Any

from deltastore.format.canonical import canonical_bytes, seal
from deltastore.format.records import record_key
from deltastore.stores.base import Store

Fields = dict[str, Any]


async def fields_of(store: Store, slot: int) -> Fields:
    """The record of a slot as plain JSON."""
    found: Fields = json.loads(await store.get(record_key(slot), limit=1 << 22))
    return found


async def put_record(store: Store, slot: int, fields: Fields) -> Fields:
    """Seal the fields and put them into the slot; returns them sealed."""
    sealed = seal(fields)
    await store.put(record_key(slot), canonical_bytes(sealed))
    return sealed


async def change_record(store: Store, slot: int, **changes: Any) -> Fields:
    """Replace members of one record and seal it: the records after it still name the old one."""
    return await put_record(store, slot, {**await fields_of(store, slot), **changes})


async def forge(store: Store, slot: int, **changes: Any) -> None:
    """Replace members of one record and seal it and every record after it: only the content can tell."""
    record = await change_record(store, slot, **changes)
    while await store.stat(record_key(slot + 1)) is not None:
        slot += 1
        record = await change_record(store, slot, parent=record["sha256"])


async def append_foreign(store: Store, *, kind: str = "label", ignorable: bool = True, **members: Any) -> int:
    """Append a record of a kind that this release does not know; returns its slot."""
    slot = 0
    while await store.stat(record_key(slot + 1)) is not None:
        slot += 1
    last = await fields_of(store, slot)
    fields = {
        "format": 1,
        "kind": kind,
        "slot": slot + 1,
        "parent": last["sha256"],
        "ignorable": ignorable,
        "epoch": last["epoch"],
        "nonce": "5" * 32,
        "time": 0,
        **members,
    }
    await put_record(store, slot + 1, fields)
    return slot + 1
