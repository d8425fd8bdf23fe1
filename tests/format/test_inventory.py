"""Inventories of anchors: the rules of the object (SPEC section "Anchors")."""

from __future__ import annotations

from typing import Any

import pytest

from deltastore.errors import CorruptError
from deltastore.format import limits
from deltastore.format.inventory import Inventory
from deltastore.format.records import AnchorRef

from .record_fields import HASH, stored

ONE = {"key": "array-00000/c/0/0", "bytes": 5, "sha256": HASH}


def inventory(*objects: Any, **changes: Any) -> bytes:
    fields = {"format": 1, "kind": "inventory", "objects": list(objects), **changes}
    return stored({key: value for key, value in fields.items() if value is not ...})


def refused(data: bytes) -> None:
    with pytest.raises(CorruptError) as caught:
        Inventory.from_bytes(data, "inventory.json")
    assert (caught.value.code, caught.value.where) == ("bad_json", "inventory.json")


def test_an_inventory_is_its_bytes() -> None:
    data = inventory(ONE, {**ONE, "key": "zarr.json", "bytes": 0})
    read = Inventory.from_bytes(data, "inventory.json")
    assert [entry.key for entry in read.objects] == ["array-00000/c/0/0", "zarr.json"]
    assert read.to_bytes() == data
    assert Inventory.from_bytes(inventory(), "inventory.json").objects == ()


@pytest.mark.spec("DS013")
def test_members() -> None:
    for member in ("kind", "objects", "format"):
        refused(inventory(ONE, **{member: ...}))
    for member in ONE:
        refused(inventory({key: value for key, value in ONE.items() if key != member}))
    refused(inventory({**ONE, "more": 1}))
    refused(inventory(ONE, more=1))
    refused(inventory(ONE, kind="table"))
    for size in (-1, limits.OBJECT_BYTES + 1, "5", True, None):
        refused(inventory({**ONE, "bytes": size}))
    Inventory.from_bytes(inventory({**ONE, "bytes": limits.OBJECT_BYTES}), "inventory.json")
    for sha256 in ("", HASH[1:], HASH.upper(), HASH + "\n", None, 5):
        refused(inventory({**ONE, "sha256": sha256}))


def test_keys_are_sorted_and_none_is_listed_twice() -> None:
    other = {**ONE, "key": "array-00000/c/0/1"}
    refused(inventory(other, ONE))
    refused(inventory(ONE, ONE))
    refused(inventory(ONE, {**ONE, "bytes": 6}))


@pytest.mark.spec("DS001")
@pytest.mark.parametrize(
    "key",
    [
        "",
        "/",
        "a/",
        "/a",
        "a//b",
        "..",
        "../a",
        "a/../b",
        "a/.b",
        "-a",
        "a b",
        "ä",
        "a\\b",
        "a\n",
        "a\0",
        None,
    ],
    ids=repr,
)
def test_keys_that_could_leave_the_anchor(key: Any) -> None:
    refused(inventory({**ONE, "key": key}))


@pytest.mark.spec("DS100")
def test_the_number_of_objects_is_limited() -> None:
    schema = Inventory.model_json_schema()
    assert schema["properties"]["objects"]["maxItems"] == limits.INVENTORY_OBJECTS == 2**18


def test_where_an_anchor_stands() -> None:
    anchor = AnchorRef(attempt="5a" * 16, inventory_sha256=HASH, inventory_bytes=1)
    assert anchor.prefix(7) == f"anchors/00000000000000000007/{'5a' * 16}/"
