"""A store as its objects by key, and ways to change it that keep all hashes right but the intended ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deltastore.format.canonical import canonical_bytes, seal

Fields = dict[str, Any]
Objects = dict[str, bytes]
Change = Callable[[Fields], object]


def load(folder: Path) -> Objects:
    """All objects of a store in a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def save(objects: Objects, folder: Path) -> None:
    """Write a store into a folder."""
    for key, data in objects.items():
        (folder / key).parent.mkdir(parents=True, exist_ok=True)
        (folder / key).write_bytes(data)


def sha256(data: bytes) -> str:
    """Lower-case hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def sealed(fields: Fields) -> bytes:
    """The canonical form of members with their seal."""
    return canonical_bytes(seal(fields))


def record_key(slot: int) -> str:
    """The key of a slot."""
    return f"log/{slot:020}.json"


def records(objects: Objects) -> list[Fields]:
    """All records in slot order."""
    return [json.loads(objects[key]) for key in sorted(objects) if key.startswith("log/")]


def record_of(objects: Objects, version: int) -> Fields:
    """The manifest of a version."""
    return next(record for record in records(objects) if record.get("version") == version)


def rechain(objects: Objects, first: int) -> None:
    """Write the records from a slot on anew, each with its own slot and the hash of the one before it."""
    parent = json.loads(objects[record_key(first - 1)])["sha256"] if first else None
    slot = first
    while record_key(slot) in objects:
        fields = json.loads(objects[record_key(slot)]) | {"slot": slot, "parent": parent}
        objects[record_key(slot)] = sealed(fields)
        parent = json.loads(objects[record_key(slot)])["sha256"]
        slot += 1


def cut(objects: Objects, slots: int) -> None:
    """Let the log end after so many slots; what later records named stays, and is nobody's."""
    while record_key(slots) in objects:
        del objects[record_key(slots)]
        slots += 1


def change_record(objects: Objects, slot: int, change: Change) -> None:
    """Change members of a record, and let the log end with it."""
    fields = json.loads(objects[record_key(slot)])
    change(fields)
    objects[record_key(slot)] = sealed(fields)
    cut(objects, slot + 1)


def append(objects: Objects, **members: Any) -> int:
    """Append a record; its slot."""
    before = records(objects)
    slot = len(before)
    common = {"format": 1, "slot": slot, "parent": before[-1]["sha256"] if before else None}
    common |= {
        "epoch": before[-1]["epoch"] if before else 0,
        "nonce": f"{slot:032x}",
        "time": 1_700_000_000_000,
    }
    objects[record_key(slot)] = sealed({**common, "ignorable": False, **members})
    return slot


def pack_key(version: int, name: str) -> str:
    """The key of a pack."""
    return f"packs/{version:020}/{name}.pack"


def entry_of(pack: bytes, slabs: list[int]) -> Fields:
    """What a manifest says of a pack."""
    rows = int.from_bytes(pack[12:16], "little")
    counts = [int.from_bytes(pack[64 + 44 * row + 12 : 64 + 44 * row + 16], "little") for row in range(rows)]
    fields = {"sha256": sha256(pack), "bytes": len(pack), "index_sha256": sha256(pack[: 64 + 44 * rows])}
    return {**fields, "rows": rows, "count": sum(counts), "slabs": slabs}


def change_pack(
    objects: Objects, version: int, number: int, change: Callable[[bytes], bytes], *, entry: bool = True
) -> None:
    """Put another pack in the place of one, under a name and, unless not ``entry``, an entry of its own."""
    record = record_of(objects, version)
    old = record["packs"][number]
    data = change(objects.pop(pack_key(version, old["sha256"])))
    new = entry_of(data, old["slabs"]) if entry else {**old, "sha256": sha256(data), "bytes": len(data)}
    objects[pack_key(version, new["sha256"])] = data
    record["packs"][number] = new
    record["statistics"]["bytes"] += new["bytes"] - old["bytes"]
    change_record(objects, record["slot"], lambda fields: fields.update(record))


def anchor_prefix(record: Fields) -> str:
    """Where the objects of an anchor stand."""
    return f"anchors/{record['version']:020}/{record['anchor']['attempt']}/"


def change_inventory(objects: Objects, version: int, change: Change) -> None:
    """Change the inventory of an anchor; the record follows."""
    record = record_of(objects, version)
    key = anchor_prefix(record) + "inventory.json"
    fields = json.loads(objects[key])
    change(fields)
    objects[key] = sealed(fields)
    record["anchor"]["inventory_sha256"] = json.loads(objects[key])["sha256"]
    record["anchor"]["inventory_bytes"] = len(objects[key])
    record["statistics"]["bytes"] = sum(item["bytes"] for item in fields["objects"])
    change_record(objects, record["slot"], lambda members: members.update(record))


def change_object(objects: Objects, version: int, name: str, change: Callable[[bytes], bytes]) -> None:
    """Put another object in the place of one of an anchor; inventory and record follow."""
    key = anchor_prefix(record_of(objects, version)) + name
    objects[key] = change(objects[key])

    def renamed(fields: Fields) -> None:
        for item in fields["objects"]:
            if item["key"] == name:
                item.update(bytes=len(objects[key]), sha256=sha256(objects[key]))

    change_inventory(objects, version, renamed)
