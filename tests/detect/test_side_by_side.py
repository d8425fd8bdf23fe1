"""Detectors that look at many batches side by side find what they find one after another."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest
import torch

from deltastore.detect import batch
from deltastore.detect.external import External
from deltastore.detect.findings import Findings
from deltastore.kernels.cpu import invert
from tests.detect.oracle import Found, Oracle
from tests.detect.trainers import Trainer, live_of
from tests.detect.watching import layer, train, watched


@pytest.fixture(autouse=True)
def tiny_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch for nearly every chunk."""
    monkeypatch.setattr(batch, "BATCH_ELEMENTS", 256)


@pytest.mark.parametrize("every", [1, 3])
async def test_inversion_finds_the_same_bytes_with_three_threads(every: int) -> None:
    """An aborted round and an edit behind its back among them."""
    trainers = [Trainer(1), Trainer(1)]
    oracles = [watched(trainer, 300, threads) for trainer, threads in zip(trainers, (1, 3), strict=True)]
    for number in range(5):
        for trainer in trainers:
            train(trainer, every)
            if number == 3:
                layer(trainer)[77] = 3.0
        findings = await _find_the_same(oracles)
        assert (findings.unexplained > 0) == (number == 3)
        for oracle in oracles:
            await (oracle.abort() if number == 1 else oracle.commit())


async def test_marks_give_the_same_bytes_with_three_threads() -> None:
    """Every other round moves ``b``, too, which is never marked."""
    random = np.random.default_rng(4)
    drawn = {name: random.standard_normal((90, 70)).astype(np.float32) for name in ("a", "b")}
    models = [{name: torch.from_numpy(tensor.copy()) for name, tensor in drawn.items()} for _ in range(2)]
    detectors = [
        External(live_of(model, 500), threads=threads) for model, threads in zip(models, (1, 3), strict=True)
    ]
    oracles = [Oracle(detector.live, detector) for detector in detectors]
    for number in range(4):
        places = random.choice(90 * 70, 300, replace=False)
        for model, detector in zip(models, detectors, strict=True):
            for name in ("a", "b")[: 1 + number % 2]:
                model[name].view(-1)[torch.from_numpy(places)] *= 1.5
            detector.mark({"a": places})
        findings = await _find_the_same(oracles)
        assert (findings.unexplained > 0) == (number % 2 == 1)
        for oracle in oracles:
            await oracle.commit()


class KernelError(Exception):
    """A kernel that fails."""


async def test_a_round_that_fails_in_one_of_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever publishes is told, no thread goes on, and the next round finds everything."""
    trainer = Trainer(2)
    oracle = watched(trainer, 300, threads=3)
    train(trainer, 2)
    calls: list[str] = []

    def failing(*args: Any) -> Any:
        calls.append(threading.current_thread().name)
        if len(calls) == 9:
            raise KernelError
        return invert(*args)

    monkeypatch.setattr("deltastore.detect.inverse.invert", failing)
    with pytest.raises(KernelError):
        await oracle.find()
    _nobody_works()
    assert 9 <= len(calls) < 9 + 3 * 3
    monkeypatch.setattr("deltastore.detect.inverse.invert", invert)
    await oracle.abort()
    train(trainer)
    found = await oracle.publish()
    assert found.sent == found.changed > 0


@pytest.mark.parametrize("batches", [1, 5])
@pytest.mark.parametrize("cancelled", [True, False])
async def test_a_round_that_is_given_up_half_way(batches: int, cancelled: bool) -> None:
    trainer = Trainer(3)
    oracle = watched(trainer, 300, threads=3)
    train(trainer, 2)
    seen = asyncio.Event()

    async def look() -> None:
        changes, count = oracle.detector.changes(), 0
        try:
            async for _ in changes:
                count += 1
                if count == batches:
                    seen.set()
                    if not cancelled:
                        break
                    await asyncio.Event().wait()
        finally:
            await changes.aclose()

    task = asyncio.ensure_future(look())
    await seen.wait()
    if cancelled:
        task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() == cancelled
    _nobody_works()
    await oracle.abort()
    train(trainer)
    found = await oracle.publish()
    assert found.sent == found.changed > 0


def _nobody_works() -> None:
    assert [one.name for one in threading.enumerate() if one.name.startswith("deltastore detect")] == []


async def _find_the_same(oracles: list[Oracle]) -> Findings:
    """A round of each, which are the same to the byte; what their certificates found."""
    found, other = [await oracle.find() for oracle in oracles]
    assert found.changed > 0
    assert len(found.batches) > 3
    assert _bytes(found) == _bytes(other)
    findings, others = [oracle.detector.findings for oracle in oracles]
    assert findings is not None
    assert findings == others
    assert await oracles[0].detector.digest() == await oracles[1].detector.digest()
    return findings


def _bytes(found: Found) -> list[tuple[bytes, bytes, bytes]]:
    return [
        (patches.rows.tobytes(), patches.body.tobytes(), patches.changed.tobytes())
        for patches in found.batches
    ]
