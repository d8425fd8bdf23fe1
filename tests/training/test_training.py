"""Real training, published by inverting the optimizer's steps: no element is missed, few are sent in vain."""

from __future__ import annotations

import pytest

from tests.training.run import Run


@pytest.mark.parametrize(
    ("model", "kernel", "every", "steps"),
    [
        ("qwen3", "fused", 1, 100),
        ("qwen3-padded", "fused", 1, 20),
        ("qwen3-moe", "foreach", 1, 100),
        ("qwen3", "foreach", 4, 100),
        ("qwen3-moe", "fused", 16, 96),
    ],
)
async def test_every_version_is_exact(model: str, kernel: str, every: int, steps: int) -> None:
    """Engines have every bit after every version.

    A weight that nearly vanished before a step has more than three possible old values, of which three are
    tried: once in about ten million, and a block of 2048 elements is sent.
    """
    run = await Run.start(model, **{kernel: True})
    changed = extra = uncertain = inverted = unexplained = 0
    for _ in range(steps // every):
        run.step(every)
        told = await run.publish()
        found = told.certificate
        assert told.changed > 0
        assert found.unexplained <= 2
        assert told.sent - told.changed <= 2048 * found.unexplained
        assert found.inverted == every * sum(param.numel() for param in run.weights.values())
        changed, extra = changed + told.changed, extra + told.sent - told.changed
        uncertain, inverted = uncertain + found.uncertain, inverted + found.inverted
        unexplained += found.unexplained
    assert 0 < uncertain < 0.002 * inverted
    assert unexplained <= 10
    assert extra <= 0.01 * changed
    await run.close()


@pytest.mark.parametrize(
    ("model", "kernel", "lr"), [("qwen3", "fused", 1e-6), ("qwen3-moe", "foreach", 5e-6)]
)
async def test_the_rates_of_online_learning(
    model: str, kernel: str, lr: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """About one weight in a hundred moves, none by much: nothing is sent that did not change."""
    monkeypatch.setattr("tests.training.run.rate", lambda taken: lr * min(1.0, (taken + 1) / 20))
    run = await Run.start(model, **{kernel: True})
    elements = sum(param.numel() for param in run.weights.values())
    uncertain = 0
    for taken in range(100):
        run.step()
        told = await run.publish()
        found = told.certificate
        assert (found.inverted, found.unexplained) == (elements, 0)
        assert told.sent == told.changed
        assert taken < 20 or 0.003 * elements < told.changed < 0.03 * elements
        uncertain += found.uncertain
    assert 0 < uncertain < 0.0002 * 100 * elements
    await run.close()
