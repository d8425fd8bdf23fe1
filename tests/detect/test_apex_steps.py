"""Apex's order of arithmetic, where inversion alone misses two elements in a million: none is missed.

``DELTASTORE_ELEMENT_STEPS=1000000000`` takes ten times as many steps.
"""

from __future__ import annotations

import os

import pytest
import torch

from deltastore.detect.inverse import AdamWInverse
from tests.detect.oracle import Oracle
from tests.detect.trainers import live_of
from tests.doubles.optimizers import ApexOrderAdamW

ELEMENT_STEPS = int(os.environ.get("DELTASTORE_ELEMENT_STEPS", "100_000_000"))
ELEMENTS = 1_000_000
REACH = 40
"""FP32 units in the last place."""


def move_to_midpoints(weight: torch.Tensor, random: torch.Generator, share: float) -> None:
    """Bring some weights within ``REACH`` of where their BF16 rounding changes; none of their bits do."""
    bits = weight.detach().view(torch.int32)
    rounded = weight.detach().bfloat16().view(torch.int16).to(torch.int32) << 16
    away = torch.randint(0, REACH, bits.shape, generator=random, dtype=torch.int32)
    above = torch.rand(bits.shape, generator=random) < 0.5
    edge = torch.where(above, rounded + 0x7FFF - away, rounded - 0x7FFF + away)
    chosen = (torch.rand(bits.shape, generator=random) < share) & (rounded & 0x7FFFFFFF > 1 << 16)
    bits.copy_(torch.where(chosen, edge, bits))


@pytest.mark.parametrize(
    ("lr", "share", "decay", "part", "most"),
    [
        (1e-6, 0.0, 0.1, 0.4, 0.0001),
        (1e-4, 0.0, 0.0, 0.3, 0.001),
        (1e-6, 0.001, 0.1, 0.2, 0.01),
        (1e-6, 1.0, 0.1, 0.1, 1.0),
    ],
    ids=["slow", "fast", "some near midpoints", "all near midpoints"],
)
async def test_no_element_is_missed(lr: float, share: float, decay: float, part: float, most: float) -> None:
    """``part`` of all element-steps; at most ``most`` of all elements are sent in vain.

    Where every weight is near a midpoint, blocks have more uncertain elements than combinations are tried of.
    """
    torch.set_num_threads(1)
    random = torch.Generator().manual_seed(9)
    weight = torch.nn.Parameter(torch.randn(1000, ELEMENTS // 1000, generator=random) * 0.02)
    optimizer = ApexOrderAdamW([weight], lr=lr, weight_decay=decay, betas=(0.9, 0.95))
    live = live_of({"weight": weight})
    detector = AdamWInverse(live)
    detector.attach(optimizer)
    oracle = Oracle(live, detector)
    weight.grad = torch.empty_like(weight)
    steps = max(round(part * ELEMENT_STEPS / ELEMENTS), 1)
    changed = sent = settled = 0
    for _ in range(steps):
        if share:
            move_to_midpoints(weight, random, share)
        weight.grad.normal_(generator=random)
        optimizer.step()
        found = await oracle.find()
        settled += detector.findings.settled
        await oracle.commit()
        changed, sent = changed + found.changed, sent + found.sent
    assert changed > 0
    assert settled > 0 or share == 1.0  # else inversion alone would have done
    assert sent - changed <= most * steps * ELEMENTS
    assert most == 1.0 or sent - changed <= 0.5 * changed
