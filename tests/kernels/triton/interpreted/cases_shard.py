"""A shard on a GPU, by a layout; the CPU stands for the GPU, whose memory the interpreter reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from deltastore.errors import CorruptError, InputError, TornError
from deltastore.format.dtypes import DTYPES
from deltastore.layout.drawing import Drawing
from deltastore.layout.live import live_specs
from deltastore.layout.pieces import Layout
from deltastore.reader.following import AsyncReader
from deltastore.reader.gpu import GpuStep, GpuTargets
from deltastore.reader.opening import open_reader
from tests.doubles.models import bf16, cut_table
from tests.doubles.stores import memory_store
from tests.doubles.training import Trainer
from tests.reader.shards import expected, fetch_by_ranges

BF16, F32 = DTYPES["BF16"], DTYPES["F32"]
MODEL = {
    "embed": bf16(np.arange(12 * 8).reshape(12, 8) * 601),
    "head": bf16(np.arange(12 * 8).reshape(12, 8) * 601),
    "experts.0.down": bf16(np.arange(48).reshape(6, 8) * 977),
    "experts.1.down": bf16(np.arange(48).reshape(6, 8) * 1009),
    "router": bf16(np.arange(16).reshape(2, 8) * 4099),
    "norm": bf16(np.arange(8)),
}


@pytest.fixture(autouse=True)
def _cpu_for_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltastore.layout.device._KIND", "cpu")
    fetch_by_ranges(monkeypatch)


def layout_of() -> Layout:
    """A tied embedding with padding, transposed experts cut in half, a widened router, a norm twice."""
    specs = {spec.name: spec for spec in live_specs(MODEL)}
    drawing = Drawing(
        "a shard", [spec for name, spec in specs.items() if name != "head"], aliases={"head": "embed"}
    )
    param = drawing.param("embed", (8, 8), BF16)
    drawing.rows(specs["embed"], 5, 7, param, 0)
    drawing.hole(param, (7, 0), (1, 8))
    param = drawing.param("w2", (2, 4, 6), BF16)
    for number in range(2):
        drawing.place(
            specs[f"experts.{number}.down"], param, lo=(0, 4), size=(6, 4), at=(number, 0, 0), axes=(2, 1)
        )
    drawing.whole(specs["router"], dtype=F32)
    drawing.whole(specs["norm"])
    drawing.whole(specs["norm"], "norm_again")
    return drawing.done()


class Scene:
    """A trainer, and a shard on a GPU that follows it."""

    reader: AsyncReader

    def __init__(self, trainer: Trainer, layout: Layout) -> None:
        self.trainer = trainer
        self.layout = layout
        self.params: dict[str, Any] = {
            param.name: torch.full(
                param.shape, 3.0, dtype=torch.float32 if param.dtype == F32 else torch.bfloat16
            )
            for param in layout.params
        }
        self.params["norm"] = torch.full((16,), 3.0, dtype=torch.bfloat16)[::2]
        self.before = self.bits()

    @classmethod
    async def start(cls, limit: int = 40) -> Scene:
        model = {name: tensor.copy() for name, tensor in MODEL.items()}
        trainer = await Trainer.create(
            memory_store(), model, table=cut_table(model, limit, 2), pack_bytes=1 << 20
        )
        scene = cls(trainer, layout_of())
        scene.reader = await open_reader(trainer.store, scene.params, layout=scene.layout)
        assert isinstance(scene.reader._targets, GpuTargets)
        await scene.reader.sync()
        return scene

    def bits(self) -> dict[str, Any]:
        kinds = {2: torch.int16, 4: torch.int32}
        return {
            name: param.contiguous().view(kinds[param.itemsize]).numpy().view(f"<u{param.itemsize}").copy()
            for name, param in self.params.items()
        }

    async def step(self, count: int) -> None:
        """Change elements of all tensors, of the tied ones alike, and publish."""
        random = self.trainer.random
        for name, tensor in self.trainer.model.items():
            flat = tensor.view(np.uint16).reshape(-1)
            if name != "head":
                flat[random.integers(len(flat), size=count)] += np.uint16(random.integers(1, 300))
        self.trainer.model["head"][...] = self.trainer.model["embed"]
        await self.trainer.publish()

    def right(self) -> bool:
        version = self.reader.version
        assert version is not None
        wanted = expected(self.layout, self.trainer.history[version], self.before)
        found = self.bits()
        return all((wanted[name] == found[name]).all() for name in wanted)


async def test_it_follows_to_the_bit() -> None:
    scene = await Scene.start()
    assert scene.right()
    await scene.step(20)
    synced = await scene.reader.sync()
    assert synced.changed > 0
    assert scene.right()
    assert await scene.reader.verify()
    scene.params["norm_again"].view(torch.int16)[0] ^= 1
    assert not await scene.reader.verify()


async def test_foreign_changes_are_found_before_a_write() -> None:
    scene = await Scene.start()
    await scene.step(20)
    scene.params["embed"].view(torch.int16)[0, 0] += 1
    before = scene.bits()
    with pytest.raises(CorruptError) as caught:
        await scene.reader.sync()
    assert caught.value.code == "bad_digest"
    assert all((before[name] == bits).all() for name, bits in scene.bits().items())
    assert scene.reader.torn


async def test_a_half_written_version_is_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = await Scene.start()
    await scene.step(20)
    real = GpuStep.write

    def fails(step: GpuStep) -> None:
        real(step)
        raise RuntimeError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(GpuStep, "write", fails)
        with pytest.raises(TornError):
            await scene.reader.sync()
    assert scene.reader.version is None
    await scene.reader.sync()
    assert scene.right()


async def test_a_version_that_has_tied_tensors_apart_is_refused() -> None:
    scene = await Scene.start()
    scene.trainer.model["head"].view(np.uint16)[6, 0] += 1
    await scene.trainer.publish()
    with pytest.raises(InputError, match="changes them apart"):
        await scene.reader.sync()
    assert scene.right()


async def test_parameters_in_two_memories_are_refused() -> None:
    scene = await Scene.start()
    mixed = {**scene.params, "norm_again": bf16(np.zeros(8))}
    with pytest.raises(InputError, match="give all of them in one memory"):
        GpuTargets(cut_table(MODEL, 40), mixed, layout=scene.layout)
