"""Reading an inventory of any length: its objects as small tuples, without the JSON values that they were.

What is stored is canonical, so it has one spelling. Bytes that have it are read as they are; of all others
the model says what is wrong.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, NamedTuple

from deltastore.format.inventory import KEY, Inventory
from deltastore.format.limits import INVENTORY_KEY_TEXT, INVENTORY_OBJECTS, OBJECT_BYTES

__all__ = ["ListedObject", "read_inventory"]


class ListedObject(NamedTuple):
    """One object of an anchor: key relative to the anchor's prefix, length in bytes and hash."""

    key: str
    bytes: int
    sha256: str


_HEAD: Final = b'{"format":1,"kind":"inventory","objects":['
_TAIL: Final = re.compile(rb'\],"sha256":"([0-9a-f]{64})"\}')
_TAIL_BYTES: Final = 78
_COMMA: Final = ord(",")
_OBJECT: Final = re.compile(
    rb'\{"bytes":(0|[1-9][0-9]{0,9}),"key":"(%b)","sha256":"([0-9a-f]{64})"\}' % KEY.encode()
)


def read_inventory(data: bytes, where: str) -> tuple[str, dict[str, ListedObject]]:
    """The hash of an inventory, and its objects by key, in order. Memory: about 400 bytes for each.

    Raises ``CorruptError`` (``bad_json``, ``bad_hash``) and ``UnsupportedError`` as ``Inventory.from_bytes``.
    """
    tail = _TAIL.fullmatch(data, max(len(data) - _TAIL_BYTES, 0))
    if tail is not None and data.startswith(_HEAD) and _sealed(data, tail) == tail[1].decode():
        found = _objects(data, tail.start())
        if found is not None:
            return tail[1].decode(), found
    inventory = Inventory.from_bytes(data, where)
    listed = (ListedObject(one.key, one.bytes, one.sha256) for one in inventory.objects)
    return inventory.sha256, {one.key: one for one in listed}


def _sealed(data: bytes, tail: re.Match[bytes]) -> str:
    sealed = hashlib.sha256(memoryview(data)[: tail.start() + 1])
    sealed.update(b"}")
    return sealed.hexdigest()


def _objects(data: bytes, end: int) -> dict[str, ListedObject] | None:
    """The objects between the head and ``end``, or None where anything is not as it must be."""
    found: dict[str, ListedObject] = {}
    at, before = len(_HEAD), ""
    while at < end:
        match = _OBJECT.match(data, at, end)
        if match is None or len(found) == INVENTORY_OBJECTS:
            return None
        nbytes, key = int(match[1]), match[2].decode()
        if nbytes > OBJECT_BYTES or key <= before or len(key) > INVENTORY_KEY_TEXT:
            return None
        found[key] = ListedObject(key, nbytes, match[3].decode())
        at, before = match.end(), key
        if at < end:
            at += 1
            if at == end or data[at - 1] != _COMMA:
                return None
    return found
