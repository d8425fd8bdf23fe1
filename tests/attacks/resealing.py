"""A stream as an attacker rewrites it: any byte of any object, and every hash over it computed again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from deltastore.format.pack import index_bytes, pack_key
from deltastore.format.records import file_key, record_key, table_key

Objects = dict[str, bytes]
Fields = dict[str, Any]


def compact(value: Any) -> bytes:
    """JSON with sorted keys and no spaces: canonical wherever the value has a canonical form."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass")


def resealed(fields: Fields) -> Fields:
    """The same object with the hash that it must have."""
    body = {name: value for name, value in fields.items() if name != "sha256"}
    return {**body, "sha256": hashlib.sha256(compact(body)).hexdigest()}


def sha256(data: bytes) -> str:
    """Lower-case hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def records_of(objects: Objects) -> list[Fields]:
    """The records of a sound stream by slot."""
    found: list[Fields] = []
    while record_key(len(found)) in objects:
        found.append(json.loads(objects[record_key(len(found))]))
    return found


def prefix_of(record: Fields) -> str:
    """Where the objects of an anchor stand."""
    return f"anchors/{record['version']:020d}/{record['anchor']['attempt']}/"


def named_keys(objects: Objects) -> set[str]:
    """The keys of all objects that the records of a sound stream name, and of the records."""
    named: set[str] = set()
    for slot, record in enumerate(records_of(objects)):
        named.add(record_key(slot))
        if record["kind"] in ("anchor", "delta"):
            named.add(table_key(record["table"]))
        if record["kind"] == "delta":
            named.update(pack_key(record["version"], pack["sha256"]) for pack in record["packs"])
        if record["kind"] == "anchor":
            prefix = prefix_of(record)
            inventory = json.loads(objects[prefix + "inventory.json"])
            named.add(prefix + "inventory.json")
            named.update(prefix + entry["key"] for entry in inventory["objects"])
            named.update(file_key(file["sha256"]) for file in record["files"])
    return named


class Rewriting:
    """A sound stream that is being rewritten. ``done`` gives it with the chain sealed again."""

    def __init__(self, objects: Objects) -> None:
        self.objects = dict(objects)
        self.records = records_of(objects)
        self._kept: set[int] = set()

    def slots(self, *kinds: str) -> list[int]:
        """The slots of the records of these kinds."""
        return [slot for slot, record in enumerate(self.records) if record["kind"] in kinds]

    def keep_parent(self, slot: int) -> None:
        """What this record says of the record before it is meant so."""
        self._kept.add(slot)

    def done(self) -> Objects:
        """All objects; every record names the hash of the one before it."""
        for key in [key for key in self.objects if key.startswith("log/")]:
            del self.objects[key]
        parent: str | None = None
        for slot, record in enumerate(self.records):
            if slot not in self._kept:
                record["parent"] = parent
            sealed = resealed(record)
            parent = sealed["sha256"]
            self.objects[record_key(slot)] = compact(sealed)
        return self.objects

    def pack(self, slot: int, number: int) -> bytes:
        """The bytes of a pack."""
        record = self.records[slot]
        return self.objects[pack_key(record["version"], record["packs"][number]["sha256"])]

    def replace_pack(self, slot: int, number: int, data: bytes, *, truthful: bool = True) -> None:
        """Other bytes for a pack, under their own name. ``truthful``: its entry counts what it has."""
        record = self.records[slot]
        entry = record["packs"][number]
        if truthful:
            entry["rows"] = max(int.from_bytes(data[12:16], "little"), 1)
            counts = [row[12:16] for row in _rows(data)]
            entry["count"] = sum(int.from_bytes(count, "little") for count in counts)
        entry["sha256"], entry["bytes"] = sha256(data), len(data)
        entry["index_sha256"] = sha256(data[: index_bytes(entry["rows"])])
        self.objects[pack_key(record["version"], entry["sha256"])] = data
        self._sum_up(record)

    def _sum_up(self, record: Fields) -> None:
        record["statistics"]["bytes"] = sum(pack["bytes"] for pack in record["packs"])

    def inventory(self, slot: int) -> Fields:
        """The inventory of an anchor."""
        found: Fields = json.loads(self.objects[prefix_of(self.records[slot]) + "inventory.json"])
        return found

    def replace_inventory(self, slot: int, inventory: Fields, *, truthful: bool = True) -> None:
        """Another inventory, which the record names."""
        record, sealed = self.records[slot], resealed(inventory)
        data = compact(sealed)
        self.objects[prefix_of(record) + "inventory.json"] = data
        record["anchor"]["inventory_sha256"], record["anchor"]["inventory_bytes"] = (
            sealed["sha256"],
            len(data),
        )
        if truthful:
            record["statistics"]["bytes"] = sum(entry["bytes"] for entry in inventory["objects"])

    def replace_in_anchor(self, slot: int, key: str, data: bytes) -> None:
        """Other bytes for an object of an anchor, which its inventory names."""
        inventory = self.inventory(slot)
        for entry in inventory["objects"]:
            if entry["key"] == key:
                entry["bytes"], entry["sha256"] = len(data), sha256(data)
        self.objects[prefix_of(self.records[slot]) + key] = data
        self.replace_inventory(slot, inventory)

    def replace_table(self, sha: str, table: Fields) -> None:
        """Another table, under its own name, in all records and anchors that had this one."""
        sealed = resealed(table)
        self.objects[table_key(sealed["sha256"])] = compact(sealed)
        for slot in self.slots("anchor", "delta"):
            record = self.records[slot]
            if record["table"] != sha:
                continue
            record["table"] = sealed["sha256"]
            if record["kind"] == "anchor":
                group = json.loads(self.objects[prefix_of(record) + "zarr.json"])
                group["attributes"]["deltastore"]["table"] = sealed["sha256"]
                self.replace_in_anchor(slot, "zarr.json", json.dumps(group).encode())

    def reorder(self, slots: Iterable[int]) -> None:
        """Only these records, in this order, each saying that it is where it stands."""
        self.records = [json.loads(json.dumps(self.records[slot])) for slot in slots]
        for slot, record in enumerate(self.records):
            record["slot"] = slot


def _rows(data: bytes) -> list[bytes]:
    count = min(int.from_bytes(data[12:16], "little"), max(len(data) - 64, 0) // 44)
    return [data[64 + 44 * row : 108 + 44 * row] for row in range(count)]
