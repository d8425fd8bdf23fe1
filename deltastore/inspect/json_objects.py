"""Records, tables, inventories, layouts, and what writers tell each other: JSON objects with a seal."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any, Final

from deltastore.anchors.inventory import fetch_inventory
from deltastore.errors import CorruptError, DeltastoreError, InputError
from deltastore.format.attestation import ATTESTATION_BYTES, Attestation
from deltastore.format.canonical import parse_canonical
from deltastore.format.inventory import Inventory
from deltastore.format.limits import INVENTORY_BYTES, RECORD_BYTES, TABLE_BYTES, VOTE_BYTES
from deltastore.format.records import AnchorRecord, parse_record
from deltastore.format.sealed import Sealed
from deltastore.format.table import TensorTable
from deltastore.format.votes import Attempt, Call, Claim, Ending, Join, Vote
from deltastore.inspect.found import Inspection
from deltastore.inspect.surroundings import Surroundings
from deltastore.inspect.verdict import judge
from deltastore.layout.layout_object import LayoutObject
from deltastore.log import Log
from deltastore.validate.objects.streamed import Named

__all__ = ["MOST_BYTES", "inspect_json", "is_huge", "loose_object", "said_kind"]

MOST_BYTES: Final = max(TABLE_BYTES, INVENTORY_BYTES)
"""No JSON object of a stream is longer."""

_SHOWN_BYTES: Final = 4 << 20
_SHOWN_PARTS: Final = 1 << 18
"""JSON of any form is read up to here: as values it takes some 40 MiB then."""

_KIND: Final = re.compile(rb'[{,]"kind":"([a-z]+)"')
_SEARCHED: Final = 1 << 12

_RECORDS: Final = ("birth", "epoch", "anchor", "delta")
_OTHERS: Final[dict[str, tuple[type[Sealed], int]]] = {
    "table": (TensorTable, TABLE_BYTES),
    "inventory": (Inventory, INVENTORY_BYTES),
    "layout": (LayoutObject, TABLE_BYTES),
    "claim": (Claim, TABLE_BYTES),
    "call": (Call, VOTE_BYTES),
    "join": (Join, VOTE_BYTES),
    "attempt": (Attempt, VOTE_BYTES),
    "vote": (Vote, VOTE_BYTES),
    "ending": (Ending, VOTE_BYTES),
    "attestation": (Attestation, ATTESTATION_BYTES),
}
_FOLDERS: Final = {"log": "record", "tables": "table", "claims": "claim"}


def loose_object(data: bytes) -> dict[str, Any] | None:
    """The JSON object in ``data`` however it is written; None where there is none, or a huge one."""
    if is_huge(data):
        return None
    try:
        value = json.loads(data.decode("utf-8", errors="replace"), parse_constant=str)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def is_huge(data: bytes) -> bool:
    """Whether JSON would take much memory as values: no more of them than of these characters, and 3."""
    return len(data) > _SHOWN_BYTES or sum(map(data.count, (b",", b"[", b"{", b":"))) > _SHOWN_PARTS


def said_kind(data: bytes, fields: dict[str, Any] | None) -> str | None:
    """The kind that an object says it is of; what could not be read is searched for it."""
    if fields is not None:
        said = fields.get("kind")
        return said if isinstance(said, str) else None
    # In canonical form the member stands before the long one, or behind it.
    found = _KIND.findall(data[:_SEARCHED] + data[-_SEARCHED:])
    return found[-1].decode() if found else None


async def inspect_json(data: bytes, into: Inspection, around: Surroundings) -> None:
    """Show what the object says, then check it: form, seal, schema, its key, and what its stream says."""
    fields = loose_object(data)
    into.kind = _kind(data, fields, into.key)
    into.facts["fields"] = fields
    if is_huge(data):
        into.notes.append("its members are too many to be shown one by one")
    if into.kind == "inventory":
        await _judge_inventory(into, around)
    try:
        value = _checked(data, fields, into)
    except DeltastoreError as error:
        into.wrong(error)
        return
    if isinstance(value, TensorTable):
        _table_facts(value, into)
        users = await around.users_of_table(value.sha256)
        into.facts["versions"] = users
        _check_name(into, value.sha256)
    elif isinstance(value, Claim):
        _check_name(into, value.sha256)
    elif isinstance(value, LayoutObject):
        _check_layout(value, into)
    elif isinstance(value, Inventory):
        into.facts["summary"] = {
            "objects": len(value.objects),
            "bytes": sum(entry.bytes for entry in value.objects),
        }
    elif into.kind == "record" and into.key is not None:
        await _check_link(value, into, around)


def _kind(data: bytes, fields: dict[str, Any] | None, key: str | None) -> str:
    said = said_kind(data, fields)
    if said in _OTHERS:
        return said
    folder, _, name = (key or "").partition("/")
    if said in _RECORDS or folder == "log" or (said is not None and fields and "slot" in fields):
        return "record"
    if name.endswith("inventory.json"):
        return "inventory"
    return _FOLDERS.get(folder, "JSON object")


def _checked(data: bytes, fields: dict[str, Any] | None, into: Inspection) -> Any:
    where = into.where
    if into.kind == "record":
        _check_size(data, RECORD_BYTES, where)
        slot = _slot_of(into.key, fields)
        return parse_record(data, slot)
    if into.kind in _OTHERS:
        kind, limit = _OTHERS[into.kind]
        _check_size(data, limit, where)
        return kind.from_bytes(data, where)
    if not is_huge(data):
        parse_canonical(data, where)
    problem = f"{where} is of no kind that this release knows"
    raise CorruptError("bad_json", problem, where=where, rule="DS013")


def _slot_of(key: str | None, fields: dict[str, Any] | None) -> int:
    """The slot that the key says, or else the object itself."""
    if key is not None and key.startswith("log/"):
        return int(key[4:24])
    said = fields.get("slot") if fields is not None else None
    return said if type(said) is int and 0 <= said < 10**20 else 0


def _check_size(data: bytes, limit: int, where: str) -> None:
    if len(data) > limit:
        message = f"{where} has {len(data)} bytes where at most {limit} are allowed"
        raise CorruptError("too_large", message, where=where, rule="DS100")


def _check_name(into: Inspection, sha256: str) -> None:
    """An object that is named by its hash must have that hash."""
    if into.key is not None and sha256 not in into.key:
        message = f"{into.where} is not the object that its name says: its sha256 is {sha256}"
        into.wrong(CorruptError("bad_hash", message, where=into.where, rule="DS011"))


def _check_layout(value: LayoutObject, into: Inspection) -> None:
    """Whether its pieces fit together."""
    try:
        layout = value.layout()
    except InputError as error:
        rule = error.rule or "DS111"
        into.wrong(CorruptError(error.code, f"{into.where}: {error}", where=into.where, rule=rule))
        return
    into.facts["summary"] = {
        "tensors": len(layout.tensors),
        "parameters": len(layout.params),
        "pieces": len(layout.pieces),
        "holes": len(layout.holes),
    }


def _table_facts(table: TensorTable, into: Inspection) -> None:
    into.facts["summary"] = {
        "arrays": len(table.arrays),
        "tensors": len(table.places),
        "elements": table.elements,
        "bytes": table.nbytes,
        "chunks": sum(len(array.grid) for array in table.arrays),
        "slabs": table.slabs,
    }
    into.facts["arrays"] = [
        {
            "array": number,
            "pattern": array.pattern,
            "dtype": array.dtype,
            "tensors": array.count,
            "shape": list(array.shape),
            "chunk": list(array.chunk),
            "chunks": len(array.grid),
            "slab": array.slab.by,
        }
        for number, array in enumerate(table.arrays)
    ]


async def _judge_inventory(into: Inspection, around: Surroundings) -> None:
    """What validation says of it, where a record names its anchor."""
    manifest = await around.manifest() if (into.key or "").startswith("anchors/") else None
    if not isinstance(manifest, AnchorRecord) or into.key is None or around.store is None:
        return
    if not into.key.startswith(manifest.anchor.prefix(manifest.version)):
        around.unnamed("anchor", manifest)
        return
    around.named_by(manifest)
    said = f"the record of version {manifest.version}"
    named = Named(into.key, manifest.anchor.inventory_bytes, manifest.anchor.inventory_sha256, said, "DS072")
    await judge(into, named, partial(fetch_inventory, around.store, manifest.version, manifest.anchor))


async def _check_link(record: Any, into: Inspection, around: Surroundings) -> None:
    """The record before it, if there is one to be read."""
    if around.store is None or record.slot == 0:
        return
    log = Log(around.store)
    try:
        before = await log.record(record.slot - 1)
    except (DeltastoreError, InputError) as error:
        into.notes.append(f"the record before it cannot be used: {error}")
        return
    if before is None:
        into.notes.append("the record before it is gone")
    else:
        try:
            await log.after(before)
        except CorruptError as error:
            into.wrong(error)
