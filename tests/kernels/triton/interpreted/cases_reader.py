"""A reader and a writer of tensors on a GPU; the CPU stands for it, whose memory the interpreter reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from deltastore.errors import CorruptError, InputError, TornError
from deltastore.format.records import DeltaRecord
from deltastore.reader.following import AsyncReader
from deltastore.reader.gpu import GpuStep, GpuTargets
from deltastore.reader.opening import open_reader
from deltastore.writer.opening import open_writer
from tests.doubles.models import Tensors, bits, cut_table, differing, small_model, tiny_model
from tests.doubles.stores import memory_store
from tests.doubles.training import Engine, Trainer
from tests.doubles.writers import by_writers

TYPES = {
    "bfloat16": torch.bfloat16,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float32": torch.float32,
    "int64": torch.int64,
}


@pytest.fixture(autouse=True)
def _cpu_for_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltastore.layout.device._KIND", "cpu")


def on_device(model: Tensors) -> dict[str, torch.Tensor]:
    """Memory for the same tensors, holding something else."""
    signed = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return {
        name: torch.full(tensor.shape, 0x25, dtype=signed[tensor.dtype.itemsize]).view(
            TYPES[tensor.dtype.name]
        )
        for name, tensor in model.items()
    }


def host_bits(tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    kinds = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return {
        name: tensor.contiguous().view(kinds[tensor.itemsize]).numpy().view(f"<u{tensor.itemsize}").copy()
        for name, tensor in tensors.items()
    }


async def start(trainer: Trainer) -> tuple[dict[str, torch.Tensor], AsyncReader]:
    tensors = on_device(trainer.model)
    reader = await open_reader(trainer.store, tensors)
    await reader.sync()
    return tensors, reader


async def test_it_follows_to_the_bit() -> None:
    model = small_model()
    trainer = await Trainer.create(memory_store(), model, table=cut_table(model, 16), pack_bytes=1 << 20)
    tensors = on_device(model)
    tensors["model.embed_tokens.weight"] = tensors["model.embed_tokens.weight"].T.contiguous().T
    tensors["model.router.weight"] = torch.zeros(8, 8)[::2]
    reader = await open_reader(trainer.store, tensors)
    assert isinstance(reader._targets, GpuTargets)
    await reader.sync()
    for count in (1, 12, 60):
        await trainer.step(count)
        synced = await reader.sync()
        assert synced.changed > 0
        assert differing(host_bits(tensors), trainer.history[trainer.writer.version or 0]) == []
    assert await reader.verify()


async def test_behind_by_several_versions_it_writes_one_after_another() -> None:
    model = tiny_model()
    trainer = await Trainer.create(memory_store(), model, pack_bytes=1 << 20)
    tensors, reader = await start(trainer)
    await trainer.steps(3, 6)
    assert (await reader.sync()).version == 3
    assert differing(host_bits(tensors), trainer.history[3]) == []


async def test_weights_that_something_else_changed_are_found_before_a_write() -> None:
    model = tiny_model()
    trainer = await Trainer.create(memory_store(), model, pack_bytes=1 << 20)
    tensors, reader = await start(trainer)
    await trainer.step(40)
    for tensor in tensors.values():
        tensor.view(torch.int16).add_(1)
    before = host_bits(tensors)
    with pytest.raises(CorruptError):
        await reader.sync()
    assert differing(host_bits(tensors), before) == []
    assert reader.torn
    await reader.sync()
    assert differing(host_bits(tensors), trainer.history[1]) == []


async def test_a_half_written_version_is_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model()
    trainer = await Trainer.create(memory_store(), model)  # a pack for each chunk
    tensors, reader = await start(trainer)
    await trainer.step(40)
    real = GpuStep.write

    def half(step: GpuStep) -> None:
        real(GpuStep(step.packs[:1]))
        raise RuntimeError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(GpuStep, "write", half)
        with pytest.raises(TornError):
            await reader.sync()
    assert (reader.version, reader.torn) == (None, True)
    await reader.sync()
    assert differing(host_bits(tensors), trainer.history[1]) == []


async def test_several_writers_of_one_chunk() -> None:
    model = tiny_model()
    trainer = await Trainer.create(memory_store(), model, pack_bytes=1 << 20)
    tensors, reader = await start(trainer)
    await trainer.step(40)
    (record,) = [one async for one in reader._log.forwards() if isinstance(one, DeltaRecord)]
    table = trainer.writer._live.table
    old, new = trainer.history[0], trainer.history[1]
    both = (lambda at: at % 2 == 0, lambda at: at % 2 == 1)
    await by_writers(trainer.store, table, record, old, new, list(both))
    await reader.sync()
    assert differing(host_bits(tensors), new) == []


async def test_two_writers_of_one_element_are_refused() -> None:
    model = tiny_model()
    trainer = await Trainer.create(memory_store(), model, pack_bytes=1 << 20)
    tensors, reader = await start(trainer)
    await trainer.step(40)
    (record,) = [one async for one in reader._log.forwards() if isinstance(one, DeltaRecord)]
    table = trainer.writer._live.table
    old, new = trainer.history[0], trainer.history[1]
    twice = (lambda at: at >= 0, lambda at: at >= 0)
    await by_writers(trainer.store, table, record, old, new, list(twice))
    with pytest.raises(CorruptError, match="two writers"):
        await reader.sync()
    assert differing(host_bits(tensors), old) == []


async def test_tied_tensors_must_change_alike() -> None:
    model = tiny_model()
    model["layers.2.weight"][...] = model["layers.1.weight"]
    trainer = await Trainer.create(memory_store(), model, pack_bytes=1 << 20)
    tensors = on_device(model)
    tensors["layers.2.weight"] = tensors["layers.1.weight"]
    reader = await open_reader(trainer.store, tensors)
    await reader.sync()
    for name in ("layers.1.weight", "layers.2.weight"):
        model[name].view(np.uint16)[0, 1] += 1
    await trainer.publish()
    await reader.sync()
    assert differing(host_bits(tensors), trainer.history[1]) == []
    model["layers.2.weight"].view(np.uint16)[0, 1] += 1
    await trainer.publish()
    with pytest.raises(InputError, match="one memory"):
        await reader.sync()


async def test_a_trainer_publishes_from_a_device() -> None:
    model = tiny_model()
    trainer = await Trainer.create(memory_store(), model, pack_bytes=1 << 20)
    tensors, _ = await start(trainer)
    writer = await open_writer(trainer.store, tensors)
    assert writer.version == 0
    tensors["norm"].view(torch.int16)[:3].add_(1)
    await writer.publish()
    engine = await Engine.start(trainer.store, model)
    await engine.reader.sync()
    assert differing(bits(engine.tensors), host_bits(tensors)) == []


def test_two_tensors_that_share_part_of_their_memory() -> None:
    model = tiny_model()
    whole = torch.zeros(6, 5, dtype=torch.bfloat16)
    tensors = on_device(model)
    tensors["layers.0.weight"], tensors["layers.1.weight"] = whole[:4], whole[2:]
    with pytest.raises(InputError, match="share part of their memory"):
        GpuTargets(cut_table(model, 8), tensors)
