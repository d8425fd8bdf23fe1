"""Experts that transformers stacks in memory and saves one by one: through a stream, in both directions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from deltastore.export import export_version
from deltastore.layout.trainers.transformers import transformers
from deltastore.stores.local import LocalStore
from deltastore.stream import AsyncStream
from tests.training.models import MODELS


@pytest.fixture
def model() -> Any:
    made = MODELS["qwen3-moe"]().bfloat16()
    made.config.architectures = [type(made).__name__]  # what loading or saving it would say
    return made


async def test_a_version_is_what_save_pretrained_saves_and_from_pretrained_loads(
    model: Any, tmp_path: Path
) -> None:
    store, live = LocalStore(tmp_path / "stream"), held(model)
    layout = transformers(model.config.to_dict())
    assert any(name.endswith("mlp.experts.gate_up_proj") for name in live)
    stream = await AsyncStream.create(store, live, layout=layout)
    writer = await stream.writer(live, layout=layout)
    change(live)
    await writer.publish()
    await stream.close()
    await export_version(store, 1, tmp_path / "exported")
    model.save_pretrained(tmp_path / "saved")
    exported, saved = (load_file(tmp_path / name / "model.safetensors") for name in ("exported", "saved"))
    assert "model.layers.1.mlp.experts.3.up_proj.weight" in saved
    assert_same_bits(exported, saved)
    model.config.save_pretrained(tmp_path / "exported")
    loaded = type(model).from_pretrained(tmp_path / "exported", local_files_only=True)
    assert_same_bits(held(loaded), live)


async def test_stacked_parameters_follow_a_trainer_that_knows_tensors_only(
    model: Any, tmp_path: Path
) -> None:
    model.save_pretrained(tmp_path / "saved")
    tensors = load_file(tmp_path / "saved" / "model.safetensors")
    stream = await AsyncStream.create(LocalStore(tmp_path / "stream"), tensors)
    writer = await stream.writer(tensors)
    engine = MODELS["qwen3-moe"]().bfloat16()
    live = held(engine)
    for tensor in live.values():
        tensor.zero_()
    reader = await stream.reader(live, layout=transformers(model.config.to_dict()))
    await reader.sync()
    assert_same_bits(live, held(model))
    change(tensors)
    await writer.publish()
    assert await reader.poll()
    await reader.sync()
    engine.save_pretrained(tmp_path / "again")
    assert_same_bits(load_file(tmp_path / "again" / "model.safetensors"), tensors)
    await stream.close()


def held(model: Any) -> dict[str, torch.Tensor]:
    return {name: param.data for name, param in model.named_parameters()}


def change(tensors: dict[str, torch.Tensor]) -> None:
    """Every 37th element of every tensor gets the other sign."""
    for tensor in tensors.values():
        tensor.view(-1)[::37] *= -1


def assert_same_bits(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert tensor.dtype == other[name].dtype == torch.bfloat16, name
        assert torch.equal(tensor.view(torch.int16), other[name].view(torch.int16)), name
