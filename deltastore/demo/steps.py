"""Fine-tuning with a version after every optimizer step: a user's training loop, measured."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from deltastore.demo.bits import bf16_bits, fingerprint
from deltastore.demo.bound import Bound, lower_bound
from deltastore.demo.trainer import Trainer
from deltastore.sync import Stream
from deltastore.writer.published import Published

__all__ = ["PublishedStep", "publish_steps"]


@dataclass(frozen=True, slots=True)
class PublishedStep:
    """One optimizer step and the version it became.

    ``loss`` in nats per byte, on the text of the step. ``began`` is when ``publish`` was called, in seconds
    of ``time.monotonic()``. ``sha256`` is the fingerprint of the trainer's own BF16 bits.
    """

    step: int
    loss: float
    published: Published
    began: float
    sha256: str
    bound: Bound


def publish_steps(trainer: Trainer, stream: Stream, steps: int) -> Iterator[PublishedStep]:
    """Take ``steps`` optimizer steps, and publish after each of them."""
    trainer.start_fine_tuning()
    writer = stream.writer(trainer.parameters, cast=True, label="demo", optimizer=trainer.optimizer)
    before = bf16_bits(trainer.parameters)
    for step in range(1, steps + 1):
        loss = trainer.step()
        began = time.monotonic()
        published = writer.publish(step=step)
        after = bf16_bits(trainer.parameters)
        yield PublishedStep(step, loss, published, began, fingerprint(after), lower_bound(before, after))
        before = after
