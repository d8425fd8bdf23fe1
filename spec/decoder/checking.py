"""A whole stream, judged: every requirement that stored bytes can break, also what a reader passes over."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from spec.decoder.anchor import open_anchor, read_inventory
from spec.decoder.elements import U64
from spec.decoder.log import read_log
from spec.decoder.reading import apply_delta, load, pack_key, read_table
from spec.decoder.records import record_key
from spec.decoder.refusal import fail, need
from spec.decoder.storage import at, get, get_named, listed
from spec.decoder.table import Table

SLOT = re.compile(r"[0-9]{20}\.json")


def check_stream(root: Path) -> int:
    """Refuse the first thing that is wrong, version by version; else the number of versions."""
    slots = [int(name[:20]) for name in listed(root, "log/") if SLOT.fullmatch(name)]
    if slots and 0 not in slots:
        check_no_gap(slots, 0)
    log = read_log(root)
    check_no_gap(slots, log.slots)
    tables: dict[str, Table] = {}
    for manifest in log.manifests.values():
        name = manifest["table"]
        tables[name] = tables.get(name) or read_table(root, name)
        if manifest["kind"] == "anchor":
            open_anchor(root, manifest, tables[name])
        check_statistics(root, manifest, tables[name])
        check_objects(root, manifest)
    weights: dict[int, list[U64]] = {}
    for version, manifest in log.manifests.items():
        table = tables[manifest["table"]]
        if manifest["kind"] == "anchor":
            weights[version] = load(root, manifest, table)
            continue
        base = log.manifests[manifest["base"]]
        before = weights[manifest["base"]]
        weights[version] = [stacked.copy() for stacked in before]
        apply_delta(root, manifest, table, weights[version], int(base["digest"], 16))
        with at(record_key(manifest["slot"])):
            pairs = zip(before, weights[version], strict=True)
            changed = sum(int((old != new).sum()) for old, new in pairs)
            few = changed <= manifest["statistics"]["changed"]
            need(few, "bad_json", "DS065", "more elements change than are said to")
    return len(log.manifests)


def check_no_gap(slots: list[int], first: int) -> None:
    """DS063: that no record stands behind the first slot that is absent."""
    with at(record_key(first)):
        last = max(slots, default=-1) < first
        need(last, "lost_object", "DS063", "a record is gone, though a later one exists")


def check_statistics(root: Path, manifest: dict[str, Any], table: Table) -> None:
    """DS064: what a manifest says of its version, against its table and its objects."""
    said = manifest["statistics"]
    with at(record_key(manifest["slot"])):
        elements = table.elements()
        need(said["elements"] == elements, "bad_json", "DS064", "elements of the model")
        found = said.get("certificate")
        if found is not None:
            few = found["uncertain"] <= found["inverted"]
            few = few and max(found["settled"], found["unexplained"]) <= found["blocks"]
            need(few, "bad_json", "DS064", "a certificate with more of something than there is")
        if manifest["kind"] == "delta":
            nbytes = sum(pack["bytes"] for pack in manifest["packs"])
            written = sum(pack["count"] for pack in manifest["packs"])
            need(said["changed"] <= written, "bad_json", "DS064", "more changed elements than are written")
        else:
            _, objects = read_inventory(root, manifest)
            nbytes = sum(item["bytes"] for item in objects.values())
            whole = said["changed"] == elements
            need(whole, "bad_json", "DS064", "changed elements of an anchor that are not all")
        need(said["bytes"] == nbytes, "bad_json", "DS064", "bytes of all packs or objects")


def check_objects(root: Path, manifest: dict[str, Any]) -> None:
    """DS061, DS063, DS072, DS073: that a version's objects are there in their lengths, and no other."""
    if manifest["kind"] == "delta":
        for entry in manifest["packs"]:
            check_there(root, pack_key(manifest["version"], entry), entry["bytes"], "DS061")
        return
    prefix, objects = read_inventory(root, manifest)
    for key, item in objects.items():
        check_there(root, prefix + key, item["bytes"], "DS073")
    for key in listed(root, prefix):
        if key not in (*objects, "inventory.json"):
            with at(prefix + key):
                fail("bad_anchor", "DS072", f"{key} is not in the inventory")
    for file in manifest["files"]:
        get_named(root, f"files/{file['sha256']}", file["bytes"], file["sha256"], "DS063")


def check_there(root: Path, key: str, nbytes: int, check: str) -> None:
    """That an object is there, and as long as what names it says."""
    data = get(root, key, nbytes, longer=check)
    with at(key):
        need(len(data) == nbytes, "bad_length", check, f"{key} is shorter than what names it says")
