"""Tensors on a GPU where the GPU kernels cannot be loaded, or that stand partly elsewhere.

What they do where they can is in tests/kernels/triton/interpreted/cases_reader.py.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from deltastore.errors import InputError
from deltastore.layout.device import host_copy, is_on_device, shadow_of
from deltastore.layout.live import LiveWeights
from deltastore.reader.opening import open_reader
from tests.doubles.models import Tensors, cut_table
from tests.doubles.stores import memory_store
from tests.doubles.training import Trainer

MODEL: Tensors = {"a": np.arange(12, dtype=np.int32).reshape(3, 4), "b": np.arange(4, dtype=np.int32)}


@pytest.fixture
def cpu_for_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch tensors count as those of a GPU; NumPy arrays do not."""
    monkeypatch.setattr("deltastore.layout.device._KIND", "cpu")


def on_device() -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(tensor.copy()) for name, tensor in MODEL.items()}


@pytest.mark.usefixtures("cpu_for_gpu")
async def test_without_triton_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = await Trainer.create(memory_store(), dict(MODEL))
    for module in [name for name in sys.modules if name.startswith("deltastore.kernels.triton")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delitem(sys.modules, "deltastore.reader.gpu", raising=False)
    monkeypatch.setitem(sys.modules, "triton", None)
    with pytest.raises(InputError, match=r"pip install 'deltastore\[gpu\]'") as caught:
        await open_reader(trainer.store, on_device())
    assert caught.value.code == "wrong_memory"


@pytest.mark.usefixtures("cpu_for_gpu")
async def test_tensors_in_two_memories_are_refused() -> None:
    trainer = await Trainer.create(memory_store(), dict(MODEL))
    mixed = {**on_device(), "b": MODEL["b"].copy()}
    with pytest.raises(InputError, match="give all of them in one memory"):
        await open_reader(trainer.store, mixed)


@pytest.mark.usefixtures("cpu_for_gpu")
async def test_weights_on_a_device_are_read_as_copies_and_offered_as_pieces() -> None:
    tensors = on_device()
    weights = LiveWeights(cut_table(MODEL, 4), tensors)
    assert weights.pieces is None
    assert weights.device_pieces is not None
    assert weights.devices == {"cpu"}
    (place,) = (weights.table.places[name] for name in ("a",))
    assert weights.tensor(*place).tolist() == MODEL["a"].tolist()
    assert all(is_on_device(piece.view) for piece in weights.device_pieces.pieces)


def test_nothing_on_a_device() -> None:
    weights = LiveWeights(cut_table(MODEL, 4), on_device())
    assert weights.pieces is not None
    assert weights.device_pieces is None
    assert weights.devices == frozenset()


def test_a_shadow_has_the_shape_of_the_memory() -> None:
    tensor = torch.zeros(6, 8, dtype=torch.int16)[::2, 1:].t()
    shadow = shadow_of(tensor)
    assert shadow.__array_interface__["data"][0] == tensor.data_ptr()
    assert shadow.shape == (7, 3)
    assert shadow.strides == (2, 32)
    assert shadow.dtype == np.dtype("<u2")
    assert shadow_of(shadow) is shadow
    assert host_copy(torch.tensor([-1, 2], dtype=torch.int16)).tolist() == [0xFFFF, 2]
