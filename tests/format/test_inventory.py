"""Inventories of anchors: the rules of the object (SPEC section "Anchors")."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from deltastore.errors import CorruptError, UnsupportedError
from deltastore.format import limits, listed
from deltastore.format.inventory import Inventory
from deltastore.format.listed import read_inventory
from deltastore.format.records import AnchorRef
from deltastore.stores.base import MAX_KEY_LENGTH, MAX_SEGMENT_LENGTH

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


@pytest.mark.spec("DS001")
def test_keys_are_as_long_as_keys_may_be() -> None:
    prefix = AnchorRef(attempt="5a" * 16, inventory_sha256=HASH, inventory_bytes=1).prefix(7)
    assert limits.INVENTORY_KEY_TEXT + len(prefix) == MAX_KEY_LENGTH
    longest = "/".join(["k" * (MAX_SEGMENT_LENGTH - 9)] * 5 + ["kk"])
    assert len(longest) == limits.INVENTORY_KEY_TEXT
    for key in ("s" * MAX_SEGMENT_LENGTH, longest):
        data = inventory({**ONE, "key": key})
        assert list(read_inventory(data, "x")[1]) == [key]
        assert Inventory.from_bytes(data, "x").objects[0].key == key
    for key in ("s" * (MAX_SEGMENT_LENGTH + 1), longest + "k"):
        data = inventory({**ONE, "key": key})
        refused(data)
        same(data)


@pytest.mark.spec("DS100")
def test_the_number_of_objects_is_limited() -> None:
    schema = Inventory.model_json_schema()
    assert schema["properties"]["objects"]["maxItems"] == limits.INVENTORY_OBJECTS == 2**18


def test_where_an_anchor_stands() -> None:
    anchor = AnchorRef(attempt="5a" * 16, inventory_sha256=HASH, inventory_bytes=1)
    assert anchor.prefix(7) == f"anchors/00000000000000000007/{'5a' * 16}/"


class TestListed:
    """What is read without models is what the model reads."""

    def test_the_tail_is_as_long_as_it_is_taken_for(self) -> None:
        assert inventory()[-listed._TAIL_BYTES :] == b'],"sha256":"' + inventory()[-66:]

    @pytest.mark.parametrize("objects", [[], [ONE], [ONE, {**ONE, "key": "zarr.json", "bytes": 0}]])
    def test_sound(self, objects: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
        data = inventory(*objects)
        wanted = Inventory.from_bytes(data, "x")
        monkeypatch.setattr(Inventory, "from_bytes", lambda *_: pytest.fail("as it must be"))
        sha256, found = read_inventory(data, "x")
        assert sha256 == wanted.sha256
        assert [one._asdict() for one in found.values()] == [one.model_dump() for one in wanted.objects]
        assert list(found) == [one.key for one in wanted.objects]

    def test_whatever_is_changed(self) -> None:
        """Any bytes, under the right seal where there is one: the same objects, or the same error."""
        keys = ("a", "a.b/c", "a/b-c", "zarr.json", "_/0")
        objects = [{**ONE, "key": key, "bytes": 10**place} for place, key in enumerate(sorted(keys))]
        data = inventory(*objects)
        random = Random(0)
        letters = b'{}[],:"/.-_ a0195\\\n\xff'
        for _ in range(3000):
            at, size = random.randrange(len(data) - 80), random.randrange(3)
            put = bytes(random.choices(letters, k=random.randrange(3)))
            same(resealed(data[:at] + put + data[at + size :]))
        for changed in ({"bytes": 2**31}, {"bytes": 2**31 + 1}, {"bytes": 10**11}, {"key": "a"}, {"key": ""}):
            same(inventory(*objects[:-1], {**objects[-1], **changed}))

    def test_very_many(self, monkeypatch: pytest.MonkeyPatch) -> None:
        objects = [{**ONE, "key": f"c/{number:04d}"} for number in range(9)]
        monkeypatch.setattr(listed, "INVENTORY_OBJECTS", 8)
        assert len(read_inventory(inventory(*objects[:8]), "x")[1]) == 8
        monkeypatch.setattr(Inventory, "from_bytes", lambda *_: pytest.fail("as it must be"))
        with pytest.raises(pytest.fail.Exception):
            read_inventory(inventory(*objects), "x")


def resealed(data: bytes) -> bytes:
    """The bytes with the hash that they would have if they were canonical."""
    body = data[: -listed._TAIL_BYTES + 1] + b"}"
    return (
        data[: -listed._TAIL_BYTES + 1] + b',"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'"}'
    )


def same(data: bytes) -> None:
    def tried(read: Callable[[], Any]) -> Any:
        try:
            return read()
        except (CorruptError, UnsupportedError) as error:
            return (error.code, error.rule, str(error))

    def by_model() -> Any:
        read = Inventory.from_bytes(data, "x")
        return read.sha256, [(one.key, one.bytes, one.sha256) for one in read.objects]

    def by_list() -> Any:
        sha256, objects = read_inventory(data, "x")
        return sha256, [tuple(one) for one in objects.values()]

    assert tried(by_list) == tried(by_model)
