"""Small streams for mutants: together they have objects, records, runs and chunks of every kind.

They are the same bytes at every run: what is random of them comes from a counter.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np

from deltastore.anchors.sharding import ShardGrid, plan_shards
from deltastore.format.digest import Digester
from deltastore.format.pack import Pack, PackBuilder, pack_key
from deltastore.format.patch import EncodedPatch, Encoding
from deltastore.format.records import DeltaRecord, FileRef, file_key
from deltastore.format.table import Array, TensorTable
from deltastore.layout.live import LiveWeights
from deltastore.log import Log
from deltastore.stores.memory import MEMORY_STORES
from deltastore.writer.opening import open_writer
from deltastore.writer.whole import create_stream
from tests.doubles.forging import append_foreign, fields_of, forge
from tests.doubles.models import Bits, Tensors, bf16, cut_table, tiny_model
from tests.doubles.stores import memory_store
from tests.doubles.training import Trainer
from tests.doubles.writers import by_writers, chunk_bits
from tests.format import naive
from tests.kernels.forging import ForgedRun, runs_patch

from .resealing import Objects, named_keys

FILES = {"config.json": b'{"model_type": "tiny"}', "tokenizer.json": b"", "merges.txt": b"a b\nc d\n"}
GARBAGE = "packs/00000000000000000001/" + "0" * 64 + ".pack"
"""An object of an interrupted writer, which no record names."""

_LOW_BITS = (0, 1, 2, 19)


@dataclass(frozen=True)
class Sample:
    """A sound stream: its objects, and the bits of every version."""

    name: str
    objects: Objects
    history: dict[int, Bits]


async def samples() -> list[Sample]:
    """All of them."""
    with repeatable():
        return [await _every_width(), await _writers(), await _tree()]


@contextmanager
def repeatable(shard_bytes: int = 40) -> Iterator[None]:
    """Nonces and times count up, and shards are of a few chunks."""
    numbers, clock = itertools.count(1), itertools.count(1_760_000_000_000_000_000, 1_000_000)

    def token(nbytes: int | None = None) -> str:
        return hashlib.sha256(str(next(numbers)).encode()).hexdigest()[: 2 * (nbytes or 16)]

    def shards(array: Array) -> ShardGrid:
        return plan_shards(array, shard_bytes)

    with ExitStack() as stack:
        stack.enter_context(patch("secrets.token_hex", token))
        stack.enter_context(patch("time.time_ns", lambda: next(clock)))
        stack.enter_context(patch("deltastore.anchors.writing.plan_shards", shards))
        yield


async def _every_width() -> Sample:
    """Runs of all widths, raw patches, several element types, carried files, a record that may be skipped."""
    model = _mixed_model()
    table = cut_table(model, 8)
    trainer = await _started(model, table, FILES)
    _move(trainer.model)
    await trainer.publish(metadata={"step": 1, "note": 'é"\\\n', "best": True, "none": None})
    await append_foreign(trainer.store, kind="label.of.tomorrow", extra={"deep": [1, {"a": []}]})
    trainer.model["norm"][:] = bf16(np.arange(12) * 5000)
    trainer.model["flags"][:3] ^= 0xFF
    await trainer.publish()
    await trainer.publish()
    await trainer.step(6, anchor=True)
    await trainer.step(6)
    await _rewrite(trainer, table, 1)
    return await _finished("every width", trainer)


async def _writers() -> Sample:
    """Packs of several writers on the same chunks, in slabs, and what writers without a copy say."""
    model = tiny_model(1)
    table = cut_table(model, 16, 2)
    trainer = await _started(model, table, {})
    await trainer.step(50)
    await trainer.step(10)
    await trainer.reopen(label="the second trainer")
    await trainer.step(30)
    owners = [lambda at: at % 3 == 0, lambda at: at % 3 == 1, lambda at: at % 3 == 2]
    history = trainer.history
    await by_writers(trainer.store, table, await _delta(trainer, 1), history[0], history[1], owners)
    await by_writers(trainer.store, table, await _delta(trainer, 3), history[2], history[3], owners)
    certificate = {"inverted": 72, "uncertain": 2, "blocks": 9, "settled": 1, "unexplained": 0}
    slot = (await _delta(trainer, 3)).slot
    statistics = (await fields_of(trainer.store, slot))["statistics"]
    await forge(trainer.store, slot, statistics={**statistics, "certificate": certificate})
    return await _finished("writers", trainer)


async def _tree() -> Sample:
    """Rollbacks to two versions, several anchors, and an epoch that resumes nothing."""
    model = tiny_model(2)
    trainer = await _started(model, cut_table(model, 8), {})
    await trainer.steps(2, 12)
    for back in (1, 0):
        trainer.load(back)
        await trainer.reopen()
        await trainer.step(12)
    await trainer.step(5, anchor=True)
    await trainer.step(5)
    trainer.model["norm"][0] = bf16(0x1234)
    await trainer.reopen()
    await trainer.publish()
    return await _finished("tree", trainer)


def _mixed_model() -> Tensors:
    random = np.random.default_rng(3)
    model = tiny_model(3)
    model["bias"] = random.integers(0, 1 << 63, 9, dtype=np.uint64).view(np.float64)
    model["flags"] = random.integers(0, 256, (5, 3)).astype(np.uint8)
    model["nothing"] = bf16(np.zeros((0, 5)))
    model["scale"] = bf16(0x3F80)
    return model


def _move(model: Tensors) -> None:
    """Change most elements, by steps of every size that an element type has room for."""
    for tensor in model.values():
        if not tensor.size:
            continue
        flat = tensor.view(f"<u{tensor.dtype.itemsize}").reshape(-1)
        for place in range(flat.size):
            widths = [width for width in naive.WIDTHS if width <= 8 * tensor.dtype.itemsize]
            step = 1 << widths[place % len(widths)] - 2
            if place % 7 != 6:
                moved = int(flat[place]) + (step if place % 2 else -step)
                flat[place] = moved % (1 << 8 * tensor.dtype.itemsize)


async def _started(model: Tensors, table: TensorTable, files: dict[str, bytes]) -> Trainer:
    store, refs = memory_store(), []
    for name, content in files.items():
        refs.append(FileRef(name=name, bytes=len(content), sha256=hashlib.sha256(content).hexdigest()))
        await store.put(file_key(refs[-1].sha256), content)
    await create_stream(store, LiveWeights(table, model), files=tuple(refs))
    trainer = Trainer(store, model, await open_writer(store, model, pack_bytes=300, threads=1))
    trainer.history[0] = {name: np.array(tensor) for name, tensor in _bits_of(model).items()}
    return trainer


async def _delta(trainer: Trainer, version: int) -> DeltaRecord:
    record = await Log(trainer.store).manifest(version)
    assert isinstance(record, DeltaRecord)
    return record


def _bits_of(model: Tensors) -> Bits:
    return {name: tensor.view(f"<u{tensor.dtype.itemsize}") for name, tensor in model.items()}


async def _rewrite(trainer: Trainer, table: TensorTable, version: int) -> None:
    """Store a delta in two packs whose patches have a run for every width that occurs, and one raw."""
    record = await _delta(trainer, version)
    old, new = trainer.history[record.base], trainer.history[version]
    places = [tuple(row) for row in table.chunk_order().tolist()]
    entries: list[dict[str, Any]] = []
    for half in (places[::2], places[1::2]):
        pack = _pack_by_widths(table, version, old, new, half)
        await trainer.store.put(pack_key(version, pack.sha256), pack.data)
        entries.append(
            {
                "sha256": pack.sha256,
                "bytes": len(pack.data),
                "index_sha256": pack.index_sha256,
                "rows": pack.rows,
                "count": pack.count,
                "slabs": list(pack.slabs),
            }
        )
    size = sum(int(entry["bytes"]) for entry in entries)
    await forge(
        trainer.store,
        record.slot,
        packs=entries,
        statistics={**record.statistics.model_dump(exclude_none=True), "bytes": size},
    )


def _pack_by_widths(
    table: TensorTable, version: int, old: Bits, new: Bits, places: list[tuple[int, ...]]
) -> Pack:
    builder, digester = PackBuilder(version, bytes(range(16))), Digester(table)
    for number, (slab, array, chunk) in enumerate(places):
        before, after = chunk_bits(table, old, array, chunk), chunk_bits(table, new, array, chunk)
        changed = np.flatnonzero(before != after).astype(np.uint32)
        if not len(changed):
            continue
        spec = table.arrays[array]
        box = spec.grid.box(chunk)
        if number % 7 == 3:
            padded = after.tobytes() + bytes(-after.nbytes % 4)
            patch_ = EncodedPatch(Encoding.RAW, padded, box.elements)
        else:
            runs = _runs(spec, before, after, changed.tolist(), _LOW_BITS[number % 4])
            patch_ = EncodedPatch(Encoding.RUNS, runs_patch(box.elements, runs), len(changed))
        difference = digester.difference(array, box, changed, before[changed], after[changed])
        builder.add(slab, array, chunk, patch_, difference)
    return builder.finish()


def _runs(spec: Array, before: Any, after: Any, changed: list[int], low_bits: int) -> list[ForgedRun]:
    element = spec.element
    positions: dict[int, list[int]] = {}
    residues: dict[int, list[int]] = {}
    for place in changed:
        one, other = (naive.to_ordered(int(bits[place]), element) for bits in (before, after))
        half = 1 << element.bits - 1
        step = (other - one + half) % (2 * half) - half
        widths = [width for width in naive.WIDTHS if width < element.bits and abs(step) < 1 << width - 1]
        width = min([*widths, element.bits])
        positions.setdefault(width, []).append(place)
        residues.setdefault(width, []).append(other % (1 << width))
    return [ForgedRun(width, low_bits, positions[width], residues[width]) for width in sorted(positions)]


async def _finished(name: str, trainer: Trainer) -> Sample:
    """What is left when the writers' own packs, which were written again, are deleted; and one orphan."""
    held = MEMORY_STORES[trainer.store.url.removeprefix("memory://")].objects
    objects = {key: held[key] for key in sorted(named_keys(held))}
    return Sample(name, {**objects, GARBAGE: b"left behind"}, trainer.history)
