"""Stores with objects that are gone, or that are not the ones that were named: SPEC sections 3, 12 and 13."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from spec.vectors.make.breaking import Broken
from spec.vectors.make.objects import Objects, anchor_prefix, pack_key, record_of, sha256

Harm = Callable[[Objects], str]
Key = Callable[[Objects], str]


def pack(version: int, number: int = 0) -> Key:
    """The key of a pack of a version."""
    return lambda objects: pack_key(version, record_of(objects, version)["packs"][number]["sha256"])


def within(version: int, name: str) -> Key:
    """The key of an object of an anchor."""
    return lambda objects: anchor_prefix(record_of(objects, version)) + name


def carried(_: Objects) -> str:
    """The key of a carried file of two bytes."""
    return f"files/{sha256(b'{}')}"


def lost(key: Key) -> Harm:
    """The object is gone."""

    def harm(objects: Objects) -> str:
        found = key(objects)
        del objects[found]
        return found

    return harm


def changed(key: Key, change: Callable[[bytes], bytes]) -> Harm:
    """The object has other bytes."""

    def harm(objects: Objects) -> str:
        found = key(objects)
        data = change(objects[found])
        if data == objects[found]:
            raise ValueError(f"nothing of {found} changed")
        objects[found] = data
        return found

    return harm


def longer(data: bytes) -> bytes:
    """A byte more."""
    return data + b"\0"


def shorter(data: bytes) -> bytes:
    """A byte less."""
    return data[:-1]


def flipped(data: bytes) -> bytes:
    """A bit of the last byte is another."""
    return data[:-1] + bytes([data[-1] ^ 1])


def _exchanged(objects: Objects) -> str:
    first = within(6, "array-00002/c/0/0/0")(objects)
    second = within(6, "array-00002/c/0/0/1")(objects)
    objects[first], objects[second] = objects[second], objects[first]
    return first


def objects() -> Iterator[Broken]:
    """All of them."""
    kinds: list[tuple[str, Key, str, int | None, str]] = [
        ("a pack", pack(5), "DS061", 5, "content"),
        ("a shard", within(6, "array-00001/c/0/0/0"), "DS073", 6, "content"),
        ("a group's metadata", within(6, "zarr.json"), "DS073", 6, "structure"),
        ("an array's metadata", within(6, "array-00000/zarr.json"), "DS073", 6, "structure"),
        ("the object of sums", within(6, "sums"), "DS073", None, "content"),
        ("an inventory", within(6, "inventory.json"), "DS072", 6, "structure"),
        ("a carried file", carried, "DS063", None, "content"),
    ]
    for name, key, check, version, hashed in kinds:
        yield Broken(f"{name} is lost", "lost_object", "DS063", "structure", lost(key), version)
        yield Broken(f"{name} is longer", "too_large", check, "structure", changed(key, longer), version)
        yield Broken(f"{name} is shorter", "bad_length", check, "structure", changed(key, shorter), version)
        if check != "DS072":
            yield Broken(f"{name} has other bytes", "bad_hash", check, hashed, changed(key, flipped), version)
    yield Broken("two shards have changed places", "bad_hash", "DS073", "content", _exchanged, 6)
    for name, key in (("a pack", pack(5)), ("a shard", within(6, "array-00003/c/0"))):
        yield _linked(f"{name} is a link", key)
    for name, key, check in (("a pack", pack(5), "DS061"), ("a carried file", carried, "DS063")):
        yield _piped(f"{name} is a pipe", key, check)


def _linked(name: str, key: Key) -> Broken:
    from spec.vectors.make.by_hand_stream import make

    found = key(make().objects)
    return Broken(name, "bad_key", "DS001", "structure", lambda _: found, links={found: "elsewhere"})


def _piped(name: str, key: Key, check: str) -> Broken:
    from spec.vectors.make.by_hand_stream import make

    found = key(make().objects)
    return Broken(name, "bad_length", check, "structure", lambda _: found, pipes=(found,))
