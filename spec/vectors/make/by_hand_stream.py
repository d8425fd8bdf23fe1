"""A stream written field by field from SPEC.md, with freedom that it gives and this release does not take.

Several shards to an array, chunks in any order within a shard, other spellings of the same Zarr metadata,
packs out of order whose ranges overlap, wide runs where narrow ones would do, versions in a tree.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from deltastore.format.dtypes import DTYPES
from spec import decoder
from spec.decoder.digest import box_factors
from spec.decoder.table import Array, tensors
from spec.vectors.make.by_hand import Row, Run, moved, pack_of, patch_of
from spec.vectors.make.by_hand_anchor import anchor_objects
from spec.vectors.make.objects import Objects, append, entry_of, pack_key, sealed, sha256
from spec.vectors.make.sample_tables import array_of

Fields = dict[str, Any]
Weights = list[decoder.U64]
Changes = dict[tuple[int, int], tuple[dict[int, int], dict[int, int]]]
"""By (array, chunk): by position the steps of a run of width 2, and the new bits of a run of full width."""

NAME = "v1-by-hand"
_COMMON: Fields = {"by": "common", "of": 0, "count": 0}
_ARRAYS: list[Fields] = [
    array_of("e.*.w", (4,), [[[0, 2]]], [1, 4], {"by": "member", "of": 0, "count": 2}),
    {**array_of("h.*", (3, 2), [[[0, 1]], [[2, 3]]], [2, 2, 1], _COMMON), "dtype": "F32"},
    array_of("p", (6, 5), [[]], [1, 4, 3], {"by": "axis", "of": 1, "count": 0}),
    {**array_of("s", (), [[]], [1], _COMMON), "dtype": "U8"},
    {**array_of("z", (0, 3), [[]], [1, 1, 3], _COMMON), "dtype": "F16"},
]
_SHARDS = [(2, 4), (2, 4, 2), (1, 4, 3), (1,), (1, 1, 3)]
"""Extents of a shard of each array."""


class ByHand:
    """A stream in the making, and the weights of its versions."""

    def __init__(self) -> None:
        text = sealed({"format": 1, "kind": "table", "slabs": 2, "arrays": _ARRAYS})
        self.table = decoder.decode_table(text)
        self.objects: Objects = {f"tables/{self.table.sha256}.json": text}
        self.weights: dict[int, Weights] = {}
        append(self.objects, kind="birth", stream="5" * 32)

    def digest(self, weights: Weights) -> str:
        """The digest of weights."""
        parts = tensors(self.table, weights).items()
        return f"{sum(decoder.digest(name, bits.reshape(-1)) for name, (_, bits) in parts) % 2**64:016x}"

    def epoch(self, number: int, resumes: int | None) -> None:
        """A trainer begins."""
        append(self.objects, kind="epoch", epoch=number, resumes=resumes, writer=f"by hand {number}")

    def anchor(
        self, version: int, weights: Weights, *, short: bool, sums: bool, files: Iterable[Fields]
    ) -> None:
        """A version stored whole."""
        attempt = f"{version:x}" * 32
        prefix = f"anchors/{version:020}/{attempt}/"
        held = anchor_objects(self.table, _SHARDS, weights, version, short=short, sums=sums)
        items: list[Fields] = [
            {"key": key, "bytes": len(held[key]), "sha256": sha256(held[key])} for key in sorted(held)
        ]
        inventory = sealed({"format": 1, "kind": "inventory", "objects": items})
        self.objects |= {prefix + key: data for key, data in held.items()}
        self.objects[prefix + "inventory.json"] = inventory
        ref = {"attempt": attempt, "inventory_sha256": json.loads(inventory)["sha256"]}
        self._commit(
            version,
            weights,
            changed=self.table.elements(),
            nbytes=sum(item["bytes"] for item in items),
            kind="anchor",
            anchor={**ref, "inventory_bytes": len(inventory)},
            files=list(files),
        )

    def pack(self, version: int, base: Weights, changes: Changes) -> tuple[bytes, Fields]:
        """A pack and what a manifest says of it; a run is as wide as its elements unless its steps are ±1."""
        rows, slabs = [], []
        order = sorted((self.table.arrays[a].slab_of(chunk), a, chunk) for a, chunk in changes)
        for slab, number, chunk in order:
            array = self.table.arrays[number]
            box, dtype = array.box(array.cell(chunk)), DTYPES[array.dtype]
            old = base[number][box].reshape(-1)
            new = old.copy()
            runs = _runs(array, old, changes[number, chunk])
            for run in runs:
                new[list(run.new)] = np.array(list(run.new.values()), np.uint64)
            difference = int(((new - old) * box_factors(array, box)).sum())
            patch = patch_of(array.elements(chunk), dtype, *runs)
            count = sum(len(run.new) for run in runs)
            rows.append(Row(number, chunk, patch, count, difference=difference % 2**64))
            slabs.append(slab)
        data = pack_of(*rows, version=version)
        return data, entry_of(data, [slabs[0], slabs[-1]])

    def delta(self, version: int, base: int, *packs: Changes, **more: Any) -> None:
        """A version stored as patches; each of ``packs`` is what one pack changes."""
        weights = [stacked.copy() for stacked in self.weights[base]]
        entries = []
        for changes in packs:
            data, entry = self.pack(version, self.weights[base], changes)
            self.objects[pack_key(version, entry["sha256"])] = data
            entries.append(entry)
            for (number, chunk), runs in changes.items():
                array = self.table.arrays[number]
                part = weights[number][array.box(array.cell(chunk))]
                for run in _runs(array, part.reshape(-1), runs):
                    at = np.unravel_index(list(run.new), part.shape)
                    part[at] = np.array(list(run.new.values()), np.uint64)
        self._commit(
            version,
            weights,
            changed=sum(entry["count"] for entry in entries),
            nbytes=sum(entry["bytes"] for entry in entries),
            kind="delta",
            base=base,
            writers=max(len(packs), 1),
            packs=entries,
            **more,
        )

    def facts(self) -> Fields:
        """What every version holds."""
        return {
            str(version): {
                "digest": self.digest(weights),
                "tensors": {
                    name: {
                        "dtype": array.dtype,
                        "shape": list(bits.shape),
                        "sha256": sha256(decoder.stored(array, bits)),
                    }
                    for name, (array, bits) in tensors(self.table, weights).items()
                },
            }
            for version, weights in self.weights.items()
        }

    def _commit(
        self,
        version: int,
        weights: Weights,
        *,
        changed: int,
        nbytes: int,
        certificate: Fields | None = None,
        **members: Any,
    ) -> None:
        self.weights[version] = weights
        statistics: Fields = {"elements": self.table.elements(), "changed": changed, "bytes": nbytes}
        statistics |= {"detector": "by hand"}
        if certificate is not None:
            statistics["certificate"] = certificate
        append(
            self.objects,
            version=version,
            table=self.table.sha256,
            digest=self.digest(weights),
            statistics=statistics,
            metadata={"step": version * 10, "note": "none"} if version else {},
            **members,
        )


def _runs(array: Array, old: decoder.U64, change: tuple[dict[int, int], dict[int, int]]) -> list[Run]:
    """The runs of a change; those that write nothing are left out."""
    steps, new = change
    dtype = DTYPES[array.dtype]
    narrow = {at: moved(int(old[at]), step, dtype) for at, step in steps.items()}
    return [run for run in (Run(2, narrow, low=1), Run(dtype.bits, new, low=3)) if run.new]


def _first_weights(table: decoder.Table) -> Weights:
    """Values whose bits are worth keeping: both zeros, NaN payloads, infinities, subnormals."""
    odd = {
        "BF16": [0x0000, 0x8000, 0x7FC1, 0xFF81, 0x7F80, 0xFF80, 0x0001, 0x8001, 0x3F80, 0xBF80, 0x7FFF],
        "F32": [0x80000000, 0x7FA00001, 0xFF800000, 0x00000001, 0x3F800000],
        "U8": [255],
        "F16": [0],
    }
    found = []
    for array in table.arrays:
        bits = np.resize(np.array(odd[array.dtype], np.uint64), math.prod(array.stacked()))
        found.append(bits.reshape(array.stacked()))
    return found


def make() -> ByHand:
    """The stream: versions 0, 1 and 2, 5 on top of 0, and 6 and 9 of a trainer that resumed nothing."""
    made = ByHand()
    config = b"{}"
    made.objects[f"files/{sha256(config)}"] = config
    made.objects[f"files/{sha256(b'')}"] = b""
    files = [
        {"name": "config.json", "bytes": 2, "sha256": sha256(config)},
        {"name": "empty", "bytes": 0, "sha256": sha256(b"")},
    ]
    first = _first_weights(made.table)
    made.epoch(1, None)
    made.anchor(0, first, short=True, sums=False, files=files)
    made.delta(
        1,
        0,
        {(2, 3): ({}, {3: 0xFFFF}), (2, 0): ({11: 1, 2: -1}, {1: 0x7FFF})},
        {(3, 0): ({0: 1}, {}), (0, 1): ({0: 0, 1: 1}, {}), (2, 0): ({10: 1}, {0: 0x8000, 5: 0x7F81})},
    )
    found = dict.fromkeys(("inverted", "uncertain", "blocks", "settled", "unexplained"), 0)
    made.delta(2, 1, certificate={**found, "inverted": 30, "blocks": 7})
    append(made.objects, kind="label", ignorable=True, of=2, text="the best so far")
    made.epoch(2, 0)
    made.delta(5, 0, {(1, 1): ({}, {0: 0x7FA00002})})
    made.epoch(3, None)
    made.anchor(6, [stacked.copy() for stacked in made.weights[1]], short=False, sums=True, files=())
    made.delta(9, 6, {(0, 0): ({0: -1}, {3: 0x1234}), (3, 0): ({}, {0: 7})}, {(1, 0): ({}, {3: 0})})
    return made
