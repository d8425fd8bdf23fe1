"""Inventories and carried files: keys that climb, sizes, hashes and names of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from deltastore.validate import Level

from .against_anchors import FILES, SLOT, resealed_anchor
from .attack import WRITER, Attack, attack, record_with
from .resealing import Fields, Objects, Rewriting, records_of


def _inventory(
    name: str,
    change: Callable[[Fields], None],
    codes: str,
    rules: str,
    level: Level = Level.STRUCTURE,
) -> Attack:
    def make(rewriting: Rewriting) -> None:
        inventory = rewriting.inventory(SLOT)
        change(inventory)
        rewriting.replace_inventory(SLOT, inventory, truthful=False)
        sizes = [entry["bytes"] for entry in inventory["objects"] if isinstance(entry, dict)]
        rewriting.records[SLOT]["statistics"]["bytes"] = sum(sizes)

    return resealed_anchor(f"inventory: {name}", make, codes, rules, level)


def _entry(number: int, **members: Any) -> Callable[[Fields], None]:
    return lambda inventory: inventory["objects"][number].update(members)


def _file(said: str, codes: str = "bad_json", rules: str = "DS013", **members: Any) -> Attack:
    """The carried file under another name, or of another size."""

    def make(rewriting: Rewriting) -> None:
        rewriting.records[SLOT]["files"][0].update(members)

    return resealed_anchor(f"file: {said}", make, codes, rules)


def _carried(name: str, change: Callable[[bytes], bytes | None], codes: str) -> Attack:
    def make(objects: Objects) -> Objects:
        key = "files/" + records_of(objects)[SLOT]["files"][0]["sha256"]
        data = change(objects.pop(key))
        return objects if data is None else {**objects, key: data}

    return attack(f"file: {name}", make, codes, "DS063 DS100", level=Level.CONTENT, passes=FILES)


def attacks() -> list[Attack]:
    """All of them."""
    keys = (
        "../x",
        "/etc/passwd",
        "a//b",
        ".hidden",
        "-option",
        "a/../b",
        "a b",
        "é",
        "a\x00b",
        "a\n",
        "x" * 201,
        "",
    )
    return [
        *(
            _inventory(
                f"key {key[:20]!r}", _entry(0, key=key), "bad_json bad_key bad_anchor", "DS001 DS013 DS072"
            )
            for key in keys
        ),
        _inventory("2 GiB and a byte", _entry(3, bytes=(1 << 31) + 1), "bad_json", "DS013 DS100"),
        _inventory("2 GiB", _entry(3, bytes=1 << 31), "bad_length bad_anchor", "DS073 DS071"),
        _inventory("another length", _entry(0, bytes=1), "too_large bad_anchor", "DS073 DS071 DS070 DS072"),
        _inventory("another hash", _entry(0, sha256="0" * 64), "bad_hash", "DS073", Level.CONTENT),
        _inventory("out of order", lambda found: found["objects"].reverse(), "bad_json", "DS013 DS072"),
        _inventory(
            "an object twice",
            lambda found: found["objects"].insert(0, found["objects"][0]),
            "bad_json",
            "DS013 DS072",
        ),
        _inventory("nothing", lambda found: found["objects"].clear(), "bad_anchor", "DS072"),
        _inventory(
            "an object more",
            lambda found: found["objects"].append({"bytes": 4, "key": "zzz", "sha256": "0" * 64}),
            "bad_anchor lost_object",
            "DS072 DS063",
        ),
        _inventory(
            "itself",
            lambda found: found["objects"].append({"bytes": 4, "key": "inventory.json", "sha256": "0" * 64}),
            "bad_json bad_anchor",
            "DS072 DS013",
        ),
        _inventory(
            "10,000 wrong objects", lambda found: found["objects"].extend([[]] * 10_000), "bad_json", "DS013"
        ),
        _inventory("a kind of its own", lambda found: found.update(kind="table"), "bad_json", "DS013"),
        attack(
            "inventory: a size beyond the limit",
            record_with(
                SLOT,
                anchor={"attempt": "0" * 32, "inventory_bytes": (64 << 20) + 1, "inventory_sha256": "0" * 64},
            ),
            "bad_json bad_chain",
            "DS013 DS100 DS051",
            passes=WRITER,
        ),
        attack(
            "inventory: of nobody",
            record_with(
                SLOT, anchor={"attempt": "0" * 32, "inventory_bytes": 64 << 20, "inventory_sha256": "0" * 64}
            ),
            "lost_object bad_chain",
            "DS063 DS051",
            passes=WRITER,
        ),
        attack(
            "inventory: an attempt that climbs",
            record_with(
                SLOT,
                anchor={"attempt": "../" * 10 + "aa", "inventory_bytes": 99, "inventory_sha256": "0" * 64},
            ),
            "bad_json bad_chain",
            "DS013 DS051",
            passes=WRITER,
        ),
        *(
            _file(f"name {name[:20]!r}", name=name)
            for name in ("../x", "/etc/passwd", ".bashrc", "a/b", "", "a\x00", "a\n", "x" * 201, "-rf")
        ),
        _file("a name of weights", "bad_json bad_anchor", "DS013", name="model.safetensors"),
        _file("a size beyond the limit", bytes=(256 << 20) + 1),
        _carried("gone", lambda _: None, "lost_object"),
        _carried("flipped", lambda data: data[:-1] + b"!", "bad_hash"),
        _carried("shorter", lambda data: data[:-1], "bad_length"),
        _carried("longer", lambda data: data + b"!", "too_large"),
    ]
