"""The stream that attackers get into their hands, and those who read it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from deltastore.format.records import FileRef, file_key
from deltastore.layout.live import LiveWeights
from deltastore.layout.pieces import Layout
from deltastore.writer.opening import open_writer
from deltastore.writer.whole import create_stream
from tests.doubles.models import Bits, Tensors, bf16, bits, cut_table
from tests.doubles.stores import contents, memory_store
from tests.doubles.training import Trainer
from tests.reader.shards import parts_of

from .resealing import Objects
from .samples import repeatable

CONFIG = b'{"model_type": "tiny"}'
HELD = 1
"""The version that followers hold when the attack comes."""


@dataclass(frozen=True)
class Victim:
    """A sound stream of versions 0 (whole), 1, 2, 3, and what its trainer and its engines hold.

    Slots: 0 birth, 1 epoch, 2 version 0, 3 epoch, 4 to 6 versions 1 to 3. ``known`` is the stream as it was
    when version ``HELD`` was the newest. ``half`` and ``whole``: layouts of some, and of all of it.
    """

    objects: Objects
    known: Objects
    history: dict[int, Bits]
    model: Tensors
    half: Layout
    whole: Layout

    @property
    def newest(self) -> int:
        """The newest version."""
        return max(self.history)

    def tensors(self, version: int) -> Tensors:
        """Live tensors that hold a version."""
        return {
            name: np.array(held).view(self.model[name].dtype).reshape(self.model[name].shape)
            for name, held in self.history[version].items()
        }


_built: list[Victim] = []


async def victim() -> Victim:
    """The same at every call."""
    if not _built:
        with repeatable(300):
            _built.append(await _build())
    return _built[0]


def built() -> Victim:
    """The same, once somebody has waited for it."""
    return _built[0]


async def _build() -> Victim:
    store, model = memory_store(), _model()
    file = FileRef(name="config.json", bytes=len(CONFIG), sha256=hashlib.sha256(CONFIG).hexdigest())
    await store.put(file_key(file.sha256), CONFIG)
    await create_stream(store, LiveWeights(cut_table(model, 64, 2), model), files=(file,), label="first")
    trainer = Trainer(store, model, await open_writer(store, model, pack_bytes=400, threads=1))
    trainer.history[0] = bits(model)
    await _step(trainer)
    known = await contents(store)
    await _step(trainer)
    await _step(trainer, metadata={"step": 3, "note": "sound"})
    return Victim(
        await contents(store),
        known,
        trainer.history,
        trainer.copy(),
        parts_of(model, 0, 2),
        parts_of(model, 0, 1),
    )


async def _step(trainer: Trainer, **options: Any) -> None:
    """The first chunk of all packs is always that of the norm: a run of two small steps."""
    trainer.model["norm"].view(np.uint16)[[3, 40]] += 1
    await trainer.step(25, **options)


def _model() -> Tensors:
    random: Any = np.random.default_rng(5)
    model = {f"layers.{layer}.weight": bf16(random.integers(0, 1 << 16, (8, 16))) for layer in range(3)}
    model["norm"] = bf16(random.integers(0x3F00, 0x4000, 64))
    model["router"] = random.standard_normal((4, 16)).astype(np.float32)
    model["flags"] = random.integers(0, 256, (6, 8)).astype(np.uint8)
    return model
