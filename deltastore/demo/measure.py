"""What the demo does: one trainer, one stream, two engines; and what there is to say about it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.text import Text

from deltastore.demo.bits import bf16_bits, differing_tensors, fingerprint
from deltastore.demo.facts import Arrival, Facts, Losses, VersionFacts
from deltastore.demo.fleet import Engine, Fleet, Start
from deltastore.demo.model import save_checkpoint
from deltastore.demo.steps import PublishedStep, publish_steps
from deltastore.demo.text import source_text
from deltastore.demo.trainer import WARM_UP_STEPS, Trainer
from deltastore.stores.open import open_store
from deltastore.sync import open as open_stream
from deltastore.writer.from_checkpoint import create_from_checkpoint
from deltastore.writer.published import Published

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["differences", "measure"]

_READERS: Final = {"engine-0": "checkpoint", "engine-1": "anchor"}
"""One engine loads what the trainer started from, the other joins with weights of no version."""


def measure(*, url: str, stays: bool, steps: int, work: Path, progress: Console) -> Facts:
    """Run the demo with its stream at ``url`` and everything else under ``work``.

    Raises ``EngineFailedError``, ``InputError`` and whatever the stream raises; no engine is left running.
    """
    started = time.monotonic()
    text = source_text()
    trainer = Trainer(text)
    untrained = trainer.loss()
    _learn(trainer, progress)
    warmed_up = trainer.loss()
    progress.print(Text(f"loss on held-out text: {untrained:.2f} untrained, {warmed_up:.2f} now"))

    checkpoint = work / "checkpoint"
    save_checkpoint(trainer.model, checkpoint)
    anchor = _create(url, checkpoint)
    progress.print(Text(f"version 0: {anchor.elements:,} elements, {anchor.nbytes:,} bytes, stored whole"))

    truth = [fingerprint(bf16_bits(trainer.parameters))]
    starts = [
        Start(name, checkpoint if origin == "checkpoint" else None) for name, origin in _READERS.items()
    ]
    with Fleet(starts, url=url, until=steps, folder=work) as fleet:
        published = _publish(trainer, url, steps, fleet, progress)
        truth += [step.sha256 for step in published]
        wrong = [line for engine in fleet.engines for line in differences(engine, truth, trainer.parameters)]
        versions = tuple(_version_facts(step, fleet) for step in published)
    return Facts(
        parameters=sum(tensor.numel() for tensor in trainer.parameters.values()),
        text_bytes=len(text),
        losses=Losses(untrained, warmed_up, trainer.loss()),
        anchor_bytes=anchor.nbytes + anchor.manifest_bytes,
        versions=versions,
        readers=_READERS,
        differences=tuple(wrong),
        url=url if stays else None,
        seconds=time.monotonic() - started,
    )


def _learn(trainer: Trainer, progress: Console) -> None:
    with progress.status("learning") as status:
        for step in range(1, WARM_UP_STEPS + 1):
            loss = trainer.step()
            status.update(Text(f"learning: step {step} of {WARM_UP_STEPS}, loss {loss:.2f}"))


def _create(url: str, checkpoint: Path) -> Published:
    """Version 0, made of the checkpoint as ``deltastore init`` makes it."""

    async def create() -> Published:
        store = open_store(url)
        try:
            return (await create_from_checkpoint(store, checkpoint, label="demo")).first
        finally:
            await store.close()

    return asyncio.run(create())


def _publish(trainer: Trainer, url: str, steps: int, fleet: Fleet, progress: Console) -> list[PublishedStep]:
    """Every version, published while the engines follow; returns once all of them have the last one."""
    published = []
    with progress.status("starting two engines") as status, open_stream(url) as stream:
        fleet.wait_for(0)
        for step in publish_steps(trainer, stream, steps):
            published.append(step)
            status.update(Text(f"published version {step.published.version} of {steps}"))
            fleet.collect()
        fleet.wait_for(steps)
        fleet.finish()
    return published


def differences(engine: Engine, truth: list[str], weights: Mapping[str, Tensor]) -> list[str]:
    """A line for each version, and for each tensor at the end, in which an engine is not the trainer.

    ``truth``: the fingerprint of every version from 0 on; ``weights``: the trainer's, as they are at the end.
    """
    wrong = [version for version, sha256 in enumerate(truth) if engine.reports[version].sha256 != sha256]
    tensors = differing_tensors(bf16_bits(weights), engine.bits)
    return [
        *(f"{engine.name} differs at version {version}" for version in wrong),
        *(f"{engine.name} differs at the end: {name}" for name in tensors),
    ]


def _version_facts(step: PublishedStep, fleet: Fleet) -> VersionFacts:
    published = step.published
    reports = [engine.reports[published.version] for engine in fleet.engines]
    return VersionFacts(
        version=published.version,
        step=step.step,
        loss=step.loss,
        nbytes=published.nbytes + published.manifest_bytes,
        bound=step.bound,
        publish_ms=published.seconds * 1000,
        arrivals=tuple(
            Arrival((report.visible_at - step.began) * 1000, report.pause_ms, report.nbytes, report.tokens)
            for report in reports
        ),
    )
