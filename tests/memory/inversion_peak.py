"""Publish by inversion in this process and print what memory that took, in bytes (Linux, glibc).

python inversion_peak.py ELEMENTS EVERY

``opened``: the rise of the peak while a writer is opened with an optimizer. ``published``: its rise while a
version is published, and from the first of ``EVERY`` steps on where there are several; ``kept``: what of that
stays between them. ``changed``: of how many elements.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from typing import Any

import torch

from deltastore.stream import AsyncStream
from tests.memory.publish_peak import Sink, forget_peak, status

_SHAPE = (1024, 1024)
_THREADS = 2


def model_of(elements: int) -> dict[str, torch.nn.Parameter]:
    """FP32 weights in tensors of a mebi element, which have one gradient in common."""
    random = torch.Generator().manual_seed(1)
    gradient = torch.randn(_SHAPE, generator=random)
    model = {}
    for number in range(elements // (_SHAPE[0] * _SHAPE[1])):
        weight = torch.nn.Parameter(torch.randn(_SHAPE, generator=random) * 0.02)
        weight.grad = gradient
        model[f"layers.{number}.weight"] = weight
    return model


async def peaks(elements: int, every: int) -> dict[str, int]:
    """Of opening, and of one version of ``every`` steps."""
    torch.set_num_threads(_THREADS)
    model = model_of(elements)
    optimizer = torch.optim.AdamW(model.values(), lr=1e-6, fused=True)
    optimizer.step()
    found: dict[str, Any] = {}
    async with await AsyncStream.create(Sink("memory://sink"), model, cast="BF16") as stream:
        gc.collect()
        before = forget_peak()
        async with await stream.writer(model, cast=True, optimizer=optimizer, threads=_THREADS) as writer:
            found["opened"] = status("VmHWM") - before
            optimizer.step()
            await writer.publish()  # what is made once is there
            optimizer.step()
            before = forget_peak()
            for _ in range(every - 1):
                optimizer.step()
            found["kept"] = status("VmRSS") - before
            published = await writer.publish()
            found["published"] = status("VmHWM") - before
    found["changed"] = published.changed
    if published.certificate is None or published.certificate.inverted != every * elements:
        raise SystemExit(f"that was no inversion of {every} steps: {published}")
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(peaks(*map(int, sys.argv[1:])))))
