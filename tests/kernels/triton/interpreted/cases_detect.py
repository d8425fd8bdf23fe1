"""A trainer on a GPU whose steps are inverted there; the CPU stands for it."""

from __future__ import annotations

import pytest
import torch

from deltastore.detect.adamw.on_device import invert_on_device
from deltastore.detect.inverse import AdamWInverse
from deltastore.layout.live_parts import LiveParts
from tests.detect.oracle import Oracle
from tests.doubles.models import bf16, cut_table


@pytest.fixture(autouse=True)
def _cpu_for_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltastore.layout.device._KIND", "cpu")


@pytest.mark.parametrize("together", [True, False])
async def test_steps_are_inverted_where_all_of_it_stands(
    together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else, as with moments that are offloaded, on the host."""
    calls = []

    def counted(*arguments: object) -> object:
        calls.append(arguments)
        return invert_on_device(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("deltastore.detect.adamw.on_device.invert_on_device", counted)
    if not together:
        monkeypatch.setattr("deltastore.detect.adamw.back.is_on_device", lambda _: False)
    torch.manual_seed(3)
    tensors = {"w": torch.randn(40, 70) * 0.02, "norm": torch.ones(70), "frozen": torch.randn(33)}
    table = cut_table(
        {name: bf16(torch.zeros(tensor.shape).numpy()) for name, tensor in tensors.items()}, 1024
    )
    parameters = {name: torch.nn.Parameter(tensor) for name, tensor in tensors.items()}
    optimizer = torch.optim.AdamW([parameters["w"], parameters["norm"]], lr=1e-5)
    live = LiveParts(table, parameters, cast=True)
    detector = AdamWInverse(live)
    detector.attach(optimizer)
    oracle = Oracle(live, detector)
    for steps in (1, 1, 3):
        for _ in range(steps):
            for parameter in (parameters["w"], parameters["norm"]):
                parameter.grad = torch.randn_like(parameter)
            optimizer.step()
        found = await oracle.publish()
        assert found.changed > 0
        assert found.sent == found.changed
    assert bool(calls) == together
