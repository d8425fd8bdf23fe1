"""Small things that claim to be huge, and huge ones: what each takes in memory, in a process of its own.

    python -m tests.attacks.bombs FOLDER [KIBIBYTES]

prints a line for each bomb: its name, how it ended, and the peak of memory so far in MiB above what was there
before the first. KIBIBYTES: of each large JSON object.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from deltastore.errors import DeltastoreError
from deltastore.format.pack import pack_key
from deltastore.format.records import record_key, table_key
from deltastore.layout.layout_object import LayoutObject
from deltastore.stores.base import Store
from deltastore.stores.local import LocalStore
from tests.doubles.stores import copied

from .resealing import Fields, Rewriting, compact, prefix_of, resealed
from .victim import Victim, victim
from .ways import Scene, refusal_of

WAYS = ("structure", "reader")

Bomb = Callable[[Rewriting], None]


def _shapes(nbytes: int) -> dict[str, list[object]]:
    return {
        "lists": [[]] * (nbytes // 3),
        "objects": [{}] * (nbytes // 3),
        "nests": [[[[[]]]]] * (nbytes // 11),
    }


def _in_record(member: str, value: object) -> Bomb:
    def lay(rewriting: Rewriting) -> None:
        rewriting.records[6][member] = value

    return lay


def _in_table(change: Callable[[Fields], object]) -> Bomb:
    def lay(rewriting: Rewriting) -> None:
        sha256 = rewriting.records[2]["table"]
        table = json.loads(rewriting.objects[table_key(sha256)])
        change(table)
        rewriting.replace_table(sha256, table)

    return lay


def _in_inventory(value: object) -> Bomb:
    def lay(rewriting: Rewriting) -> None:
        rewriting.replace_inventory(2, {**rewriting.inventory(2), "objects": value}, truthful=False)

    return lay


def _in_metadata(data: bytes) -> Bomb:
    return lambda rewriting: rewriting.replace_in_anchor(2, "array-00001/zarr.json", data)


def _many_members(table: Fields) -> None:
    """As many tensors as are allowed, by a table of some hundred bytes, and one more."""
    table["arrays"][1]["members"] = [[[0, (1 << 21) + 1]]]


def json_bombs(nbytes: int) -> dict[str, Bomb]:
    """Objects that are sealed and in canonical form, and much of something."""
    found: dict[str, Bomb] = {}
    for name, value in _shapes(nbytes).items():
        found[f"record of {name}"] = _in_record("digest", value)
        found[f"packs that are {name}"] = _in_record("packs", value)
        found[f"table of {name}"] = _in_table(lambda table, value=value: table.update(arrays=value))  # type: ignore[misc]
        found[f"slabs that are {name}"] = _in_table(lambda table, value=value: table.update(slabs=value))  # type: ignore[misc]
        found[f"inventory of {name}"] = _in_inventory(value)
        found[f"metadata of {name}"] = _in_metadata(compact({"shape": value}))
    many = {f"{key:x}": 0 for key in range(nbytes // 12)}
    found["record of members"] = _in_record("metadata", many)
    found["table of members"] = _in_table(lambda table: table.update(many))
    found["tensors without end"] = _in_table(_many_members)
    found["shards without end"] = _in_metadata(
        b'{"chunk_grid":{"configuration":{"chunk_shape":[1' + b"0" * 4000 + b"]}}}"
    )
    return found


def large_files(target: Victim) -> dict[str, str]:
    """Keys of objects of which each becomes a tebibyte of nothing."""
    records = Rewriting(target.objects).records
    prefix = prefix_of(records[2])
    return {
        "a record": record_key(6),
        "a table": table_key(records[2]["table"]),
        "a pack": pack_key(3, records[6]["packs"][0]["sha256"]),
        "an inventory": prefix + "inventory.json",
        "metadata": prefix + "zarr.json",
        "a shard": prefix + "array-00001/c/0/0/0",
        "sums": prefix + "sums",
        "a carried file": "files/" + records[2]["files"][0]["sha256"],
    }


def layout_bombs(nbytes: int) -> dict[str, bytes]:
    """Layouts that claim more tensors, pieces or elements than there can be."""
    good: Fields = {"format": 1, "kind": "layout", "name": "", "tensors": [], "params": [], "pieces": []}
    good |= {"holes": [], "aliases": {}, "ties": {}, "unheld": []}
    stack = {"pattern": "a.*", "dtype": "BF16", "shape": [2], "members": [[[0, 10**9]]]}
    wide = {"name": "p", "dtype": "BF16", "shape": [2**53 - 1] * 16, "view": None}
    found = {f"layout of {name}": {**good, "pieces": value} for name, value in _shapes(nbytes).items()}
    found["layout of tensors"] = {**good, "tensors": [stack]}
    found["layout of elements"] = {**good, "params": [wide]}
    found["layout of members"] = {
        **good,
        "tensors": [{**stack, "pattern": ".".join("*" * 16), "members": [[[0, 10**9]] * 16]}],
    }
    return {name: compact(resealed(fields)) for name, fields in found.items()}


def _peak() -> float:
    gc.collect()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def _refused(target: Victim, store: Store) -> str:
    """How each way ended; the codes, in order."""
    codes = []
    for way in WAYS:
        with tempfile.TemporaryDirectory() as folder:
            refusal = await refusal_of(way, Scene(target, store, store, Path(folder)))
        codes.append("passed" if refusal is None else f"{refusal.code}/{refusal.rule}")
    return " ".join(codes)


async def _large(target: Victim, folder: Path, key: str) -> str:
    root = folder / "stream"
    for name, data in target.objects.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    os.truncate(root / key, 1 << 40)
    return await _refused(target, LocalStore(root))


def _laid(data: bytes) -> str:
    try:
        LayoutObject.from_bytes(data, "layout.json").layout()
    except DeltastoreError as error:
        return f"{error.code}/{error.rule}"
    return "passed"


async def main(folder: Path, nbytes: int) -> None:
    """Set them all off."""
    target = await victim()
    await _refused(target, await copied(target.objects))
    before = _peak()
    for name, key in large_files(target).items():
        print(
            f"{name} of a tebibyte\t{await _large(target, folder, key)}\t{_peak() - before:.0f}", flush=True
        )
    for name, data in layout_bombs(nbytes).items():
        print(f"{name}\t{_laid(data)}\t{_peak() - before:.0f}", flush=True)
    for name, lay in json_bombs(nbytes).items():
        rewriting = Rewriting(target.objects)
        lay(rewriting)
        said = await _refused(target, await copied(rewriting.done()))
        print(f"{name}\t{said}\t{_peak() - before:.0f}", flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int([*sys.argv, "256"][2]) << 10))
