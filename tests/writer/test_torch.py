"""A trainer whose tensors are torch's: every element type and every kind of memory, followed bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from deltastore.errors import InputError
from deltastore.layout.memory import bits_of
from deltastore.reader.opening import open_reader
from deltastore.stream import AsyncStream
from deltastore.validate import validate
from deltastore.writer.opening import open_writer
from tests.doubles.models import Bits, bits, differing
from tests.doubles.stores import memory_store
from tests.layout.test_memory import TORCH, torch_tensor

Torch = dict[str, torch.Tensor]


def model() -> Torch:
    """Every element type, as whole, transposed, strided, scalar and empty memory; parameters; tied heads."""
    tensors: Torch = {}
    for name in TORCH:
        tensors[f"of.{name}.whole"] = torch_tensor(name)
        tensors[f"of.{name}.transposed"] = torch_tensor(name).t()
        tensors[f"of.{name}.strided"] = torch_tensor(name)[:, 1::2]
        tensors[f"of.{name}.scalar"] = torch_tensor(name)[1, 2]
        tensors[f"of.{name}.empty"] = torch_tensor(name)[:0]
    embed = torch.nn.Embedding(5, 4, dtype=torch.bfloat16)
    tensors["embed.weight"] = embed.weight
    tensors["lm_head.weight"] = embed.weight
    tensors["layers.0.norm"] = torch.nn.Parameter(torch.ones(3))
    tensors["layers.1.norm"] = torch.ones(6)[::2]
    return tensors


def like(tensors: Torch) -> Torch:
    """Engine memory: the same shapes and types, tied heads tied, nothing else shared, other bits."""
    made = {
        name: torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
        for name, tensor in tensors.items()
    }
    for name, tensor in made.items():
        bits_of(name, tensor)[...] = 0xA5
    made["lm_head.weight"] = made["embed.weight"]
    return made


def shake(tensors: Torch, random: np.random.Generator) -> None:
    """Change about a third of all elements, whatever they are."""
    for name, tensor in tensors.items():
        view = bits_of(name, tensor)
        mask = random.random(view.shape) < 0.3
        new = np.frombuffer(random.bytes(view.nbytes), view.dtype).reshape(view.shape)
        view[...] = np.where(mask, new, view)


async def test_every_tensor_is_followed() -> None:
    store = memory_store()
    random = np.random.default_rng(2)
    tensors = model()
    await AsyncStream.create(store, tensors)
    writer = await open_writer(store, tensors)
    assert writer.version == 0
    history: dict[int, Bits] = {0: bits(tensors)}
    for version in range(1, 5):
        shake(tensors, random)
        published = await writer.publish(anchor=version == 3)
        assert published.version == version
        history[version] = bits(tensors)
    engine = like(tensors)
    reader = await open_reader(store, engine)
    for target in (4, 0, 2, 3, 1):
        await reader.sync(target)
        assert differing_bits(engine, history[target]) == []
    assert engine["embed.weight"].data_ptr() == engine["lm_head.weight"].data_ptr()
    assert (await validate(store)).ok


def differing_bits(engine: Torch, wanted: Bits) -> list[str]:
    return differing(bits(engine), wanted)


@pytest.mark.parametrize("how", ["clone", "other shape"])
async def test_a_parameter_whose_memory_was_replaced(how: str) -> None:
    """What the writer would see has stopped to change, whatever the optimizer does: never zero changes."""
    parameter = torch.nn.Parameter(torch.zeros(4, 6))
    store = memory_store()
    await AsyncStream.create(store, {"w": parameter})
    writer = await open_writer(store, {"w": parameter})
    parameter.data.add_(1)
    assert (await writer.publish()).changed == 24
    data = parameter.data
    parameter.data = data.clone() if how == "clone" else data[:2]
    for anchor in (False, True):
        with pytest.raises(InputError, match="other memory") as caught:
            await writer.publish(anchor=anchor)
        assert (caught.value.code, caught.value.where) == ("wrong_memory", "w")
    parameter.data = data
    assert (await writer.publish()).changed == 0


async def test_training_with_an_optimizer() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.LayerNorm(6), torch.nn.Linear(6, 2)).bfloat16()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    store = memory_store()
    tensors: dict[str, Any] = dict(net.named_parameters())
    await AsyncStream.create(store, tensors)
    writer = await open_writer(store, tensors)
    twin = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.LayerNorm(6), torch.nn.Linear(6, 2)).bfloat16()
    reader = await open_reader(store, dict(twin.named_parameters()))
    for step in range(1, 5):
        optimizer.zero_grad()
        net(torch.randn(3, 8, dtype=torch.bfloat16)).float().pow(2).sum().backward()
        optimizer.step()
        published = await writer.publish(step=step)
        assert published.changed > 0
        assert (await reader.sync()).version == step
        for ours, theirs in zip(net.parameters(), twin.parameters(), strict=True):
            assert torch.equal(ours.view(torch.int16), theirs.view(torch.int16))
        assert all(parameter.grad is None and parameter.requires_grad for parameter in twin.parameters())
