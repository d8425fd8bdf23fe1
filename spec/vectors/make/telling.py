"""What every story of a stream needs: a model in memory, its versions, and the facts beside the stream."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from deltastore import __version__
from deltastore.format.canonical import canonical_bytes, seal
from deltastore.format.records import file_key, record_key
from deltastore.format.table import TensorTable
from deltastore.log import Log
from deltastore.stores.local import LocalStore
from spec.vectors.make.objects import sha256

Tensors = dict[str, np.ndarray[Any, Any]]
Fields = dict[str, Any]


class Telling:
    """A stream in the making in ``folder/name``, and ``tensors``, a trainer's model."""

    def __init__(self, folder: Path, name: str, tensors: Tensors, *, seed: int = 1) -> None:
        self._folder = folder
        self._name = name
        self.store = LocalStore(folder / name)
        self.random = np.random.default_rng(seed)
        self.tensors = tensors
        self._kept: dict[int, Tensors] = {}

    def keep(self, version: int) -> None:
        """The model is now this version."""
        self._kept[version] = {name: tensor.copy() for name, tensor in self.tensors.items()}

    def restore(self, version: int) -> None:
        """The model becomes a version again."""
        for name, tensor in self._kept[version].items():
            self.tensors[name][...] = tensor

    def move(self, share: float) -> None:
        """Change about ``share`` of the elements by one bit: the lowest, or the one below the sign."""
        for tensor in self.tensors.values():
            bits = tensor.reshape(-1).view(f"u{tensor.itemsize}")
            chosen = self.random.random(bits.size) < share
            flip = self.random.choice([1, 1, 1, 1 << (8 * tensor.itemsize - 2)], bits.size).astype(bits.dtype)
            if tensor.dtype != bool:
                bits[chosen] ^= flip[chosen]

    async def carry(self, name: str, data: bytes) -> Fields:
        """Put a carried file; what a record says of it."""
        await self.store.put(file_key(sha256(data)), data)
        return {"name": name, "bytes": len(data), "sha256": sha256(data)}

    async def append_foreign(self, kind: str, **members: Any) -> None:
        """A record of a kind that no reader knows, which it may ignore."""
        last = await Log(self.store).tip()
        fields = {"format": 1, "kind": kind, "ignorable": True, "slot": last.slot + 1}
        chain = {"parent": last.sha256, "epoch": last.epoch, "nonce": "00" * 16, "time": 0}
        key = record_key(last.slot + 1)
        await self.store.put_if_absent(key, canonical_bytes(seal({**fields, **chain, **members})))

    async def write_facts(self, table: TensorTable) -> None:
        """Write what every version holds, as its tensors were when it was published."""
        versions = {}
        log = Log(self.store)
        for version, tensors in self._kept.items():
            found = {
                spec.name: {
                    "dtype": spec.dtype.name,
                    "shape": list(spec.shape),
                    "sha256": hashlib.sha256(tensors[spec.name].tobytes()).hexdigest(),
                }
                for spec in table.tensors()
            }
            manifest = await log.manifest(version)
            versions[str(version)] = {"digest": manifest.digest, "tensors": found}
        write_facts(self._folder, self._name, __version__, versions)


def write_facts(folder: Path, name: str, release: str, versions: Fields) -> None:
    """The file beside a stream."""
    text = json.dumps({"release": release, "versions": versions}, indent=1) + "\n"
    (folder / f"{name}.json").write_text(text, encoding="ascii")
