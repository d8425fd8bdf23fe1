"""Small whole streams, with the bits of every version. Written once by a release, then kept for ever."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np

from deltastore import __version__
from deltastore.format.canonical import canonical_bytes, seal, sha256_hex
from deltastore.format.records import FileRef, file_key, record_key
from deltastore.format.table import SlabRule, TensorTable
from deltastore.layout.cutting import plain_table
from deltastore.layout.live import LiveWeights, live_specs
from deltastore.log import Log
from deltastore.stores.local import LocalStore
from deltastore.stream import AsyncStream
from deltastore.writer import create_stream
from spec.vectors.make import by_hand_stream
from spec.vectors.make.objects import save
from spec.vectors.make.stories import STORIES, Story
from spec.vectors.make.telling import write_facts

Tensors = dict[str, np.ndarray[Any, Any]]

_CONFIG = b'{"model_type": "example"}\n'
_CUTS: dict[str, tuple[tuple[int, ...], SlabRule]] = {
    "layers.*.proj.weight": ((1, 7, 16), SlabRule(by="axis", of=1, count=0)),
    "embed.weight": ((1, 12, 5), SlabRule(by="axis", of=1, count=0)),
    "experts.*.weight": ((1, 8, 8), SlabRule(by="member", of=0, count=4)),
}
"""Chunk and slab rule where they are not those of the plain grid; some chunks are cut on both axes."""


def write_streams(folder: Path) -> None:
    """Write this release's streams unless they are there, and the one that is made by hand."""
    name = f"v1-by-{__version__}"
    if not (folder / name).exists():
        asyncio.run(_Story(folder, name).tell())
    for story, tell in STORIES.items():
        if not (folder / story).exists():
            asyncio.run(_told(tell, folder, story))
    if not (folder / by_hand_stream.NAME).exists():
        made = by_hand_stream.make()
        save(made.objects, folder / by_hand_stream.NAME)
        write_facts(folder, by_hand_stream.NAME, "by hand", made.facts())


async def _told(tell: Story, folder: Path, name: str) -> None:
    await tell(folder, name)


def _model(rng: np.random.Generator) -> Tensors:
    import ml_dtypes

    def bf16(*shape: int) -> np.ndarray[Any, Any]:
        return (rng.standard_normal(shape) * 0.02).astype(ml_dtypes.bfloat16)

    tensors: Tensors = {f"layers.{layer}.proj.weight": bf16(24, 16) for layer in (0, 1, 3)}
    tensors |= {f"layers.{layer}.norm.weight": bf16(16) for layer in (0, 1, 3)}
    tensors |= {f"experts.{expert}.weight": bf16(8, 8) for expert in range(4)}
    tensors["embed.weight"] = bf16(50, 16)
    tensors["router.weight"] = rng.standard_normal((4, 16)).astype(np.float32)
    tensors["fp8.weight"] = bf16(8, 8).astype(ml_dtypes.float8_e4m3fn)
    tensors["fp8.scale"] = np.array(0.25, dtype=np.float32)
    tensors["mask"] = np.array([True, False, True])
    tensors["steps"] = np.arange(4, dtype=np.int64)
    tensors["empty"] = np.zeros((0, 3), dtype=np.float16)
    return tensors


def _table(tensors: Tensors) -> TensorTable:
    plain = plain_table(live_specs(tensors))
    arrays = []
    for array in plain.arrays:
        chunk, slab = _CUTS.get(array.pattern, (array.chunk, array.slab))
        arrays.append(array.model_copy(update={"chunk": chunk, "slab": slab}))
    return TensorTable.seal_new(slabs=2, arrays=tuple(arrays))


class _Story:
    """What happens to the stream, version by version."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._store = LocalStore(folder / name)
        self._rng = np.random.default_rng(1)
        self._tensors = _model(self._rng)
        self._kept: dict[int, Tensors] = {}

    async def tell(self) -> None:
        """Write the stream and the facts beside it."""
        config = FileRef.model_validate(
            {"name": "config.json", "bytes": len(_CONFIG), "sha256": sha256_hex(_CONFIG)}, strict=True
        )
        await self._store.put(file_key(config.sha256), _CONFIG)
        first = LiveWeights(_table(self._tensors), self._tensors)
        await create_stream(self._store, first, files=(config,), label="vectors")
        self._keep(0)
        async with await AsyncStream.open(self._store) as stream:
            await self._train(stream)
            await self._skip_a_record()
            await self._go_back_to_2(stream)
            await self._start_anew(stream)
            await self._write_facts(stream)

    async def _train(self, stream: AsyncStream) -> None:
        """Sparse, empty and dense deltas, in several packs, with hostile values; a gap; an anchor."""
        writer = await stream.writer(self._tensors, label="vectors", pack_bytes=1500)
        for version, share in ((1, 0.02), (2, 0.0), (3, 0.9), (5, 0.1), (6, 0.1), (7, 0.01)):
            self._move(share)
            if version == 1:
                self._tensors["embed.weight"].view(np.uint16)[0, :4] = [0x8000, 0x7FC1, 0xFFA5, 0x7F80]
            await writer.publish(version=version, step=version * 10, anchor=version == 6)
            self._keep(version)

    async def _skip_a_record(self) -> None:
        """A record of a kind that no reader knows, which it may ignore."""
        last = await Log(self._store).tip()
        fields = {"format": 1, "kind": "example", "ignorable": True, "slot": last.slot + 1}
        chain = {"parent": last.sha256, "epoch": last.epoch, "nonce": "00" * 16, "time": 0, "note": "skip me"}
        await self._store.put_if_absent(record_key(last.slot + 1), canonical_bytes(seal({**fields, **chain})))

    async def _go_back_to_2(self, stream: AsyncStream) -> None:
        """A trainer that holds version 2 goes on from there, though the tip is 7."""
        self._restore(2)
        writer = await stream.writer(self._tensors, label="rolled back", resumes=2)
        self._move(0.05)
        await writer.publish()
        self._keep(8)

    async def _start_anew(self, stream: AsyncStream) -> None:
        """A trainer whose weights are no version's: its first version is an anchor."""
        self._move(0.5)
        writer = await stream.writer(self._tensors, label="anew")
        await writer.publish()
        self._keep(9)
        self._move(0.03)
        await writer.publish()
        self._keep(10)

    def _keep(self, version: int) -> None:
        self._kept[version] = {name: tensor.copy() for name, tensor in self._tensors.items()}

    def _restore(self, version: int) -> None:
        for name, tensor in self._kept[version].items():
            self._tensors[name][...] = tensor

    def _move(self, share: float) -> None:
        """Change about ``share`` of the elements by one bit: the lowest, or the one below the sign."""
        for tensor in self._tensors.values():
            bits = tensor.reshape(-1).view(f"u{tensor.itemsize}")
            chosen = self._rng.random(bits.size) < share
            flip = self._rng.choice([1, 1, 1, 1 << (8 * tensor.itemsize - 2)], bits.size).astype(bits.dtype)
            if tensor.dtype != bool:
                bits[chosen] ^= flip[chosen]

    async def _write_facts(self, stream: AsyncStream) -> None:
        table = (await stream.weights(0)).table
        versions = {}
        for version, tensors in self._kept.items():
            facts = {}
            for spec in table.tensors():
                bits = tensors[spec.name].tobytes().hex()
                facts[spec.name] = {"dtype": spec.dtype.name, "shape": list(spec.shape), "bits": bits}
            manifest = await stream.manifest(version)
            versions[str(version)] = {"digest": manifest.digest, "tensors": facts}
        text = json.dumps({"versions": versions}, indent=1) + "\n"
        (self._folder / f"{self._name}.json").write_text(text, encoding="ascii")
