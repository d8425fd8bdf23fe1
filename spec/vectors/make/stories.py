"""What happened to each stream of this release: its element types, its writers, its epochs, its files."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from deltastore.format.canonical import canonical_bytes, seal
from deltastore.format.dtypes import DTYPES
from deltastore.format.records import FileRef, record_key
from deltastore.format.table import SlabRule, TensorTable
from deltastore.layout.cutting import plain_table
from deltastore.layout.live import LiveWeights, live_specs
from deltastore.layout.parts import Part
from deltastore.log import Log
from deltastore.stream import AsyncStream
from deltastore.writer import create_stream
from spec.live_types import LIVE_TYPES
from spec.vectors.make.telling import Telling, Tensors

__all__ = ["STORIES"]

Story = Callable[[Path, str], Awaitable[None]]


async def _dtypes(folder: Path, name: str) -> None:
    """Every element type: one step, then all bits anew, then nothing, then one element of some."""
    telling = Telling(folder, name, _every_type(), seed=2)
    async with await AsyncStream.create(telling.store, telling.tensors, label="types") as stream:
        telling.keep(0)
        writer = await stream.writer(telling.tensors, label="types")
        for share in (0.2, None, 0.0, 0.05):
            if share is None:
                _randomize(telling)
            else:
                telling.move(share)
            telling.keep((await writer.publish()).version)
        await telling.write_facts((await stream.weights(0)).table)


def _every_type() -> Tensors:
    tensors = {}
    for dtype in DTYPES.values():
        octets = np.arange(12 * dtype.itemsize, dtype=np.uint8) * np.uint8(23)
        bits = octets % 2 if dtype.name == "BOOL" else octets
        tensors[f"w.{dtype.name.lower()}"] = bits.view(LIVE_TYPES[dtype.name]).reshape(3, 4)
    return tensors


def _randomize(telling: Telling) -> None:
    for tensor in telling.tensors.values():
        if tensor.dtype != bool:
            octets = telling.random.integers(0, 256, tensor.nbytes, dtype=np.uint8)
            tensor.reshape(-1).view(np.uint8)[:] = octets


async def _writers(folder: Path, name: str) -> None:
    """Two writers of one model, cut across the chunks; a version by one of them, and one stored whole."""
    rng = np.random.default_rng(3)
    whole: Tensors = {f"layers.{layer}.w": _bf16(rng, 6, 8) for layer in range(2)}
    whole["norm"] = _bf16(rng, 8)
    telling = Telling(folder, name, whole, seed=3)
    async with await AsyncStream.create(telling.store, whole, label="two writers") as stream:
        telling.keep(0)
        writers = await asyncio.gather(
            *(
                stream.writer(_half(whole, rank), label=f"rank {rank}", rank=rank, writers=2, run="vectors")
                for rank in range(2)
            )
        )
        for version, share in ((1, 0.3), (2, 0.0), (3, 0.6), (4, 0.3)):
            telling.move(share)
            if version == 2:
                whole["norm"].view(np.uint16)[0] ^= 1
            await asyncio.gather(*(writer.publish(anchor=version == 3) for writer in writers))
            telling.keep(version)
        await telling.write_facts((await stream.weights(0)).table)


def _half(whole: Tensors, rank: int) -> dict[str, Any]:
    """The columns that a writer holds: the first three, or the others."""
    found = {}
    for name, tensor in whole.items():
        start, stop = ((0, 3), (3, 8))[rank]
        at = (0,) * (tensor.ndim - 1) + (start,)
        found[name] = Part(tensor[..., start:stop], tensor.shape, at)
    return found


async def _epochs(folder: Path, name: str) -> None:
    """Trainers that go back: a tree of versions with gaps, records to skip, and a version of no change."""
    rng = np.random.default_rng(4)
    telling = Telling(folder, name, {"a": _bf16(rng, 40), "b": rng.standard_normal(6)}, seed=4)
    async with await AsyncStream.create(telling.store, telling.tensors, label="root") as stream:
        telling.keep(0)
        await _grow(telling, stream, 0, {10: 0.1, 11: 0.0, 20: 0.2})
        await telling.append_foreign("label", of=20, text="skip me")
        await telling.append_foreign("example", packs=[], version=3, base="none")
        await _grow(telling, stream, 10, {21: 0.1, 30: 0.1})
        await _grow(telling, stream, 0, {40: 0.1})
        await _grow(telling, stream, 21, {})
        await _grow(telling, stream, 30, {2**40: 0.3})
        telling.move(0.5)
        await _grow(telling, stream, None, {2**40 + 1: 0.0, 2**53 - 1: 0.1})
        await _certify(telling)
        await telling.write_facts((await stream.weights(0)).table)


async def _grow(
    telling: Telling, stream: AsyncStream, resumes: int | None, versions: dict[int, float]
) -> None:
    """A trainer that begins with a version's weights, or with those that there are, and publishes."""
    if resumes is not None:
        telling.restore(resumes)
    writer = await stream.writer(telling.tensors, label=f"from {resumes}", resumes=resumes)
    for version, share in versions.items():
        telling.move(share)
        await writer.publish(version=version, step=version % 1000, metadata={"share": str(share)})
        telling.keep(version)


async def _certify(telling: Telling) -> None:
    """The last record as a writer without a copy would have it."""
    last = await Log(telling.store).tip()
    fields = last.model_dump(mode="json")
    found = {"inverted": 46, "uncertain": 3, "blocks": 2, "settled": 1, "unexplained": 0}
    fields["statistics"]["certificate"] = found
    await telling.store.put(record_key(last.slot), canonical_bytes(seal(fields)))


async def _files(folder: Path, name: str) -> None:
    """Carried files, slabs of every rule, chunks cut short, tensors of rank 0 and without elements."""
    rng = np.random.default_rng(5)
    tensors: Tensors = {f"experts.{expert}.w": _bf16(rng, 4, 3) for expert in (0, 1, 2, 4)}
    tensors |= {f"layers.{layer}.up": _bf16(rng, 10, 7) for layer in range(3)}
    tensors |= {"scale": np.array(1.5, np.float32), "none": np.zeros((2, 0), np.float32)}
    telling = Telling(folder, name, tensors, seed=5)
    files = [
        await telling.carry("config.json", b'{"model_type": "example"}'),
        await telling.carry("tokenizer.model", bytes(range(256))),
        await telling.carry("merges.txt", b""),
    ]
    refs = tuple(FileRef.model_validate(file, strict=True) for file in files)
    table = _cut(plain_table(live_specs(tensors)))
    await create_stream(telling.store, LiveWeights(table, tensors), files=refs, label="files")
    telling.keep(0)
    async with await AsyncStream.open(telling.store) as stream:
        writer = await stream.writer(tensors, label="files", pack_bytes=1)
        for version, share in ((1, 0.1), (2, 0.4), (3, 0.02)):
            telling.move(share)
            await writer.publish(step=version, anchor=version == 2)
            telling.keep(version)
        await telling.write_facts(table)


_CUTS: Final[dict[str, tuple[tuple[int, ...], SlabRule]]] = {
    "experts.*.w": ((1, 3, 2), SlabRule(by="member", of=0, count=6)),
    "layers.*.up": ((2, 4, 4), SlabRule(by="axis", of=1, count=0)),
}


def _cut(plain: TensorTable) -> TensorTable:
    arrays = []
    for array in plain.arrays:
        chunk, slab = _CUTS.get(array.pattern, (array.chunk, array.slab))
        arrays.append(array.model_copy(update={"chunk": chunk, "slab": slab}))
    return TensorTable.seal_new(slabs=3, arrays=tuple(arrays))


def _bf16(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    return (rng.standard_normal(shape) * 0.02).astype(LIVE_TYPES["BF16"])


STORIES: Final[dict[str, Story]] = {
    "v1-dtypes": _dtypes,
    "v1-writers": _writers,
    "v1-epochs": _epochs,
    "v1-files": _files,
}
