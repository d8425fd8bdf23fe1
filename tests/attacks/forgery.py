"""Mutants by an attacker who seals again whatever he changes: only the rules, and the weights, can tell."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial

from deltastore.format.records import record_key, table_key

from .damage import Draw, Make, Mutant, pick
from .forged_logs import reordered_log, splice
from .packs import with_another_patch, with_changed_field, with_moved_rows
from .resealing import Rewriting, compact, prefix_of, resealed
from .samples import Sample
from .shards import Anchor, digests_from
from .values import changed_member

Forge = Callable[[Rewriting, Draw], str | None]
"""Changes a stream; says what it did, or None where there was nothing to change."""


def forgery_of(samples: Sequence[Sample]) -> dict[str, Make]:
    """How to make a mutant of each kind; of some draws there is none."""
    forges: dict[str, Forge] = {f"member: {kind}": partial(_member, kind) for kind in _RECORDS}
    forges |= {f"forged {name}": forge for name, forge in _FORGES.items()}
    makes = {kind: partial(_forged, samples, kind, forge) for kind, forge in forges.items()}
    return {**makes, "forged splice": partial(splice, samples)}


def _forged(samples: Sequence[Sample], kind: str, forge: Forge, draw: Draw) -> Mutant | None:
    for number in draw.permutation(len(samples)).tolist():
        rewriting = Rewriting(samples[number].objects)
        said = forge(rewriting, draw)
        if said is None:
            continue
        objects = rewriting.done()
        if objects != samples[number].objects:
            return Mutant(kind, samples[number], said, objects, resealed=True)
    return None


_RECORDS = {
    "birth": ("birth",),
    "epoch": ("epoch",),
    "anchor": ("anchor",),
    "delta": ("delta",),
    "skipped": ("label.of.tomorrow",),
}


def _member(kind: str, rewriting: Rewriting, draw: Draw) -> str | None:
    slots = rewriting.slots(*_RECORDS[kind])
    if not slots:
        return None
    slot = pick(draw, slots)
    before = {name: value for name, value in rewriting.records[slot].items() if name != "sha256"}
    said, after = changed_member(before, draw)
    if before.get("parent") != after.get("parent") or "parent" not in after:
        rewriting.keep_parent(slot)
    rewriting.records[slot] = after
    return f"{record_key(slot)}: {said}"


def _table(rewriting: Rewriting, draw: Draw) -> str:
    key = pick(draw, sorted(key for key in rewriting.objects if key.startswith("tables/")))
    table = json.loads(rewriting.objects[key])
    sha256 = table.pop("sha256")
    said, after = changed_member(table, draw)
    rewriting.replace_table(sha256, after)
    return f"{key}: {said}"


def _own_table(rewriting: Rewriting, draw: Draw) -> str:
    """One delta has a table of its own: the same tensors in another number of slabs."""
    slots = rewriting.slots("delta")
    empty = [slot for slot in slots if not rewriting.records[slot]["packs"]]
    slot = pick(draw, empty or slots)
    record = rewriting.records[slot]
    table = json.loads(rewriting.objects[table_key(record["table"])])
    sealed = resealed({**table, "slabs": table["slabs"] + 1})
    rewriting.objects[table_key(sealed["sha256"])] = compact(sealed)
    record["table"] = sealed["sha256"]
    return f"{record_key(slot)} has another table"


def _anchor(rewriting: Rewriting, draw: Draw) -> int:
    return pick(draw, rewriting.slots("anchor"))


def _inventory(rewriting: Rewriting, draw: Draw) -> str:
    slot = _anchor(rewriting, draw)
    inventory = rewriting.inventory(slot)
    del inventory["sha256"]
    said, after = changed_member(inventory, draw)
    truthful = isinstance(after.get("objects"), list) and all(
        isinstance(entry, dict) and type(entry.get("bytes")) is int for entry in after["objects"]
    )
    rewriting.replace_inventory(slot, after, truthful=truthful)
    return f"the inventory of {record_key(slot)}: {said}"


def _metadata(rewriting: Rewriting, draw: Draw) -> str:
    slot = _anchor(rewriting, draw)
    keys = [entry["key"] for entry in rewriting.inventory(slot)["objects"]]
    key = pick(draw, [key for key in keys if key.endswith("zarr.json")])
    found = json.loads(rewriting.objects[prefix_of(rewriting.records[slot]) + key])
    said, after = changed_member(found, draw)
    rewriting.replace_in_anchor(slot, key, json.dumps(after).encode("utf-8", "surrogatepass"))
    return f"{key} of {record_key(slot)}: {said}"


def _object_left_out(rewriting: Rewriting, draw: Draw) -> str:
    """An object of an anchor is in neither inventory nor store; or is in both under another key."""
    slot = _anchor(rewriting, draw)
    inventory, prefix = rewriting.inventory(slot), prefix_of(rewriting.records[slot])
    entry = pick(draw, inventory["objects"])
    data = rewriting.objects.pop(prefix + entry["key"])
    said = f"{entry['key']} of {record_key(slot)} left out"
    inventory["objects"].remove(entry)
    if draw.random() < 0.3:
        moved = {**entry, "key": entry["key"] + pick(draw, ("0", "/0", ".bak"))}
        inventory["objects"].append(moved)
        inventory["objects"].sort(key=lambda one: str(one["key"]))
        rewriting.objects[prefix + moved["key"]] = data
        said += f", there as {moved['key']}"
    rewriting.replace_inventory(slot, inventory)
    return said


def _objects_swapped(rewriting: Rewriting, draw: Draw) -> str | None:
    """Two objects of an anchor change places, and the inventory knows."""
    slot = _anchor(rewriting, draw)
    objects = rewriting.inventory(slot)["objects"]
    one = pick(draw, objects)
    alike = [entry for entry in objects if entry["bytes"] == one["bytes"] and entry is not one]
    other = pick(draw, alike or objects)
    prefix = prefix_of(rewriting.records[slot])
    first, second = (rewriting.objects[prefix + entry["key"]] for entry in (one, other))
    rewriting.replace_in_anchor(slot, one["key"], second)
    rewriting.replace_in_anchor(slot, other["key"], first)
    return f"{one['key']} and {other['key']} of {record_key(slot)}"


def _shard(rewriting: Rewriting, draw: Draw) -> str | None:
    """Bytes of a shard, of its index or its chunks; checksums and sums are right again, or some of them."""
    slot = _anchor(rewriting, draw)
    anchor = Anchor(rewriting, slot)
    return anchor.change_bytes(draw)


def _weights(rewriting: Rewriting, draw: Draw) -> str | None:
    """Other weights of an anchor, with checksums, sums and all digests that follow from them."""
    slot = _anchor(rewriting, draw)
    return Anchor(rewriting, slot).change_weight(draw)


def _sums(rewriting: Rewriting, draw: Draw) -> str | None:
    slot = _anchor(rewriting, draw)
    key = prefix_of(rewriting.records[slot]) + "sums"
    if key not in rewriting.objects:
        return None
    data = rewriting.objects[key]
    at = int(draw.integers(len(data)))
    options = (data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], data[:-16], data + data[:16], data[::-1])
    rewriting.replace_in_anchor(slot, "sums", pick(draw, options))
    return f"sums of {record_key(slot)}"


def _some_pack(rewriting: Rewriting, draw: Draw) -> tuple[int, int] | None:
    slots = [slot for slot in rewriting.slots("delta") if rewriting.records[slot]["packs"]]
    slot = pick(draw, slots)
    return slot, int(draw.integers(len(rewriting.records[slot]["packs"])))


def _pack_by(
    change: Callable[[bytes, Draw], tuple[str, bytes]], rewriting: Rewriting, draw: Draw
) -> str | None:
    found = _some_pack(rewriting, draw)
    if found is None:
        return None
    slot, number = found
    said, data = change(rewriting.pack(slot, number), draw)
    rewriting.replace_pack(slot, number, data, truthful=draw.random() < 0.9)
    return f"pack {number} of {record_key(slot)}: {said}"


def _pack_replaced(rewriting: Rewriting, draw: Draw) -> str | None:
    """A pack of another version or place, whose version may be made to fit."""
    found, other = _some_pack(rewriting, draw), _some_pack(rewriting, draw)
    if found is None or other is None:
        return None
    data = rewriting.pack(*other)
    if draw.random() < 0.7:
        version = int(rewriting.records[found[0]]["version"])
        data = data[:16] + version.to_bytes(8, "little") + data[24:]
    rewriting.replace_pack(*found, data)
    return f"pack {found[1]} of {record_key(found[0])} is pack {other[1]} of {record_key(other[0])}"


def _packs_listed(rewriting: Rewriting, draw: Draw) -> str | None:
    """Packs in another order, one twice, one left out, or one of another delta besides."""
    found, other = _some_pack(rewriting, draw), _some_pack(rewriting, draw)
    if found is None or other is None:
        return None
    record = rewriting.records[found[0]]
    packs, how = record["packs"], int(draw.integers(4))
    if how == 0:
        packs.reverse()
    elif how == 1:
        packs.append(copy.deepcopy(packs[found[1]]))
    elif how == 2:
        del packs[found[1]]
        written = sum(pack["count"] for pack in packs)
        record["statistics"]["changed"] = min(record["statistics"]["changed"], written)
    else:
        packs.append(copy.deepcopy(rewriting.records[other[0]]["packs"][other[1]]))
    record["statistics"]["bytes"] = sum(pack["bytes"] for pack in packs)
    return f"packs of {record_key(found[0])}: {('reversed', 'twice', 'left out', 'one more')[how]}"


def _digests(rewriting: Rewriting, draw: Draw) -> str | None:
    """A digest difference of a row, and every digest that follows from it."""
    found = _some_pack(rewriting, draw)
    if found is None:
        return None
    data = bytearray(rewriting.pack(*found))
    row = int(draw.integers(int.from_bytes(data[12:16], "little")))
    at, shift = 64 + 44 * row + 20, int(draw.integers(1, 1 << 62))
    old = int.from_bytes(data[at : at + 8], "little")
    data[at : at + 8] = ((old + shift) % (1 << 64)).to_bytes(8, "little")
    rewriting.replace_pack(*found, bytes(data))
    digests_from(rewriting, found[0], shift)
    return f"row {row} of pack {found[1]} of {record_key(found[0])}, and digests after it"


def _renumbered(rewriting: Rewriting, draw: Draw) -> str | None:
    """The last version has another number, in its packs too."""
    slot = rewriting.slots("delta", "anchor")[-1]
    record = rewriting.records[slot]
    if record["kind"] != "delta":
        return None
    packs = [rewriting.pack(slot, number) for number in range(len(record["packs"]))]
    record["version"] += int(draw.integers(1, 1000))
    for number, data in enumerate(packs):
        moved = data[:16] + int(record["version"]).to_bytes(8, "little") + data[24:]
        entry = record["packs"][number]
        entry["sha256"], entry["index_sha256"] = _hashes(moved, int(entry["rows"]))
        rewriting.objects[f"packs/{record['version']:020d}/{entry['sha256']}.pack"] = moved
    return f"the last version is {record['version']}"


def _hashes(data: bytes, rows: int) -> tuple[str, str]:
    return hashlib.sha256(data).hexdigest(), hashlib.sha256(data[: 64 + 44 * rows]).hexdigest()


_FORGES: dict[str, Forge] = {
    "table": _table,
    "table of one version": _own_table,
    "inventory": _inventory,
    "zarr.json": _metadata,
    "objects of an anchor": _object_left_out,
    "swap in an anchor": _objects_swapped,
    "shard": _shard,
    "sums": _sums,
    "weights": _weights,
    "pack field": partial(_pack_by, with_changed_field),
    "patch": partial(_pack_by, with_another_patch),
    "rows": partial(_pack_by, with_moved_rows),
    "pack of another version": _pack_replaced,
    "list of packs": _packs_listed,
    "digests": _digests,
    "version number": _renumbered,
    "log": reordered_log,
}
