"""SPEC 15: reading a version."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from spec.decoder.anchor import load_anchor
from spec.decoder.digest import box_factors, digest
from spec.decoder.elements import U64
from spec.decoder.log import read_log
from spec.decoder.pack import Pack, Row, decode_pack
from spec.decoder.patch import Position, Run, apply_patch
from spec.decoder.records import record_key
from spec.decoder.refusal import need
from spec.decoder.storage import at, get, get_named
from spec.decoder.table import Array, Table, decode_table, tensors


def pack_key(version: int, entry: dict[str, Any]) -> str:
    """The key of a pack."""
    return f"packs/{version:020}/{entry['sha256']}.pack"


def read_table(root: Path, sha256: str) -> Table:
    """The table of this name."""
    key = f"tables/{sha256}.json"
    with at(key):
        table = decode_table(get(root, key, 64 * 2**20))
        need(table.sha256 == sha256, "bad_hash", "DS011", "a table that is not of its name")
    return table


def open_pack(root: Path, version: int, entry: dict[str, Any], table: Table) -> Pack:
    """DS061: a pack that is what its entry in the manifest says."""
    key = pack_key(version, entry)
    raw = get_named(root, key, entry["bytes"], entry["sha256"], "DS061")
    with at(key):
        index = hashlib.sha256(raw[: 64 + 44 * entry["rows"]]).hexdigest()
        need(index == entry["index_sha256"], "bad_hash", "DS061", "the index of a pack")
        pack = decode_pack(raw, table)
        counted = sum(row.elements for row in pack.rows)
        found = [pack.version, len(pack.rows), counted, pack.slabs[0], pack.slabs[-1]]
        said = [version, entry["rows"], entry["count"], *entry["slabs"]]
        need(found == said, "bad_index", "DS061", "version, rows, count or slabs of a pack")
    return pack


class Staged:
    """SPEC 15.1: what a delta will write, worked out from the weights of its base before any is written."""

    def __init__(self, table: Table, weights: list[U64]) -> None:
        self._table, self._weights = table, weights
        self._written: dict[tuple[int, int], npt.NDArray[np.bool_]] = {}
        self._new: list[tuple[U64, Position, U64]] = []
        self.difference = 0

    def take(self, row: Row, runs: list[Run]) -> None:
        """DS036, DS046: one patch; its digest difference is that of its row."""
        array = self._table.arrays[row.array]
        box = array.box(array.cell(row.chunk))
        chunk = self._weights[row.array][box]
        old = chunk.reshape(-1)
        new = apply_patch(runs, array.dtype, old)
        difference = int(((new - old) * box_factors(array, box)).sum())
        need(difference == row.difference, "bad_digest", "DS046", "the digest difference of a patch")
        self.difference += difference
        positions = np.concatenate([run.positions for run in runs])
        self._new.append((chunk, positions, new[positions]))

    def is_free(self, row: Row, runs: list[Run]) -> bool:
        """DS045: whether no other pack patches these elements; now this one does."""
        positions = np.concatenate([run.positions for run in runs])
        n = self._table.arrays[row.array].elements(row.chunk)
        taken = self._written.setdefault((row.array, row.chunk), np.zeros(n, np.bool_))
        free = not taken[positions].any()
        taken[positions] = True
        return free

    def write(self) -> None:
        """Write all of it."""
        for chunk, positions, bits in self._new:
            chunk[np.unravel_index(positions, chunk.shape)] = bits


def apply_delta(root: Path, manifest: dict[str, Any], table: Table, weights: list[U64], base: int) -> None:
    """SPEC 15.1: check and work out the whole version, then write; `base` is the digest of the weights."""
    version, staged = manifest["version"], Staged(table, weights)
    decoded: list[tuple[str, Row, list[Run]]] = []
    for entry in manifest["packs"]:
        pack, key = open_pack(root, version, entry, table), pack_key(version, entry)
        with at(key):
            decoded += [(key, row, pack.runs(row, table.arrays[row.array])) for row in pack.rows]
    with at(record_key(manifest["slot"])):
        free = [staged.is_free(row, runs) for _, row, runs in decoded]
        need(all(free), "bad_patch", "DS045", "an element in two packs")
    for key, row, runs in decoded:
        with at(key):
            staged.take(row, runs)
    with at(record_key(manifest["slot"])):
        found = f"{(base + staged.difference) % 2**64:016x}"
        need(found == manifest["digest"], "bad_digest", "DS062", "the digest of the version")
    staged.write()


def load(root: Path, manifest: dict[str, Any], table: Table) -> list[U64]:
    """DS093: the weights of an anchor, which have the digest of its manifest."""
    weights = load_anchor(root, manifest, table)
    parts = tensors(table, weights).items()
    found = sum(digest(name, bits.reshape(-1)) for name, (_, bits) in parts) % 2**64
    with at(record_key(manifest["slot"])):
        need(f"{found:016x}" == manifest["digest"], "bad_digest", "DS093", "the weights of an anchor")
    return weights


def read_version(
    root: Path, version: int | None = None
) -> tuple[dict[str, Any], dict[str, tuple[Array, U64]]]:
    """The manifest of a version (without one: of the tip), and the array and the bits of every tensor."""
    manifests = read_log(root).manifests
    version = max(manifests, default=-1) if version is None else version
    need(version in manifests, "no_version", None, f"version {version}")
    path = [manifests[version]]
    while path[-1]["kind"] == "delta":
        path.append(manifests[path[-1]["base"]])
    table = read_table(root, path[0]["table"])
    anchor = path.pop()
    weights, base = load(root, anchor, table), anchor["digest"]
    for manifest in reversed(path):
        apply_delta(root, manifest, table, weights, int(base, 16))
        base = manifest["digest"]
    return manifests[version], tensors(table, weights)
