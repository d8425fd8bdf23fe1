"""What one of several writers does in a process of its own, which may be killed at any call of its store.

The process is forked from one that has loaded everything but tensorstore, which does not survive a fork.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from deltastore.errors import DeltastoreError
from deltastore.stores import open_store
from deltastore.writer.opening import open_writer
from deltastore.writer.publishing import AsyncWriter
from tests.distributed.together import WRITERS, parts_of
from tests.doubles.models import unsigned

from .dying_publisher import model_of
from .mortal import Death, MortalStore

__all__ = ["LAST_VERSION", "Job", "Outcome", "work"]

LAST_VERSION = 2


@dataclass(frozen=True)
class Job:
    """One writer of a run: it publishes versions 1, a delta, and 2, stored whole."""

    url: str
    rank: int
    run: str
    patience: float
    death: Death | None
    environment: Mapping[str, str]


@dataclass
class Outcome:
    """How a writer ended: the versions that it knows to be published, and the error that stopped it."""

    published: list[int] = field(default_factory=list)
    opened: bool = False
    code: str | None = None
    message: str = ""


def work(job: Job, parent: Connection) -> None:
    """Tell the parent how it went; asked to, publish once more and tell how that went."""
    os.environ.update(job.environment)
    asyncio.run(_work(job, parent))


async def _work(job: Job, parent: Connection) -> None:
    model = model_of(0)
    outcome, writer = Outcome(), None
    async with MortalStore(open_store(job.url), job.death) as store:
        try:
            writer = await open_writer(
                store,
                parts_of(model, job.rank),
                rank=job.rank,
                writers=WRITERS,
                run=job.run,
                timeout=job.patience,
                pack_bytes=1,
                label="the first trainer",
            )
            outcome.opened = True
            for version in range(1, LAST_VERSION + 1):
                for name, tensor in model_of(version).items():
                    model[name].view(unsigned(tensor))[...] = tensor.view(unsigned(tensor))
                await writer.publish(step=version, anchor=version == LAST_VERSION)
                outcome.published.append(version)
        except DeltastoreError as error:
            outcome.code, outcome.message = error.code, str(error)
        parent.send(outcome)
        if writer is not None and parent.recv():
            parent.send(await _once_more(writer))


async def _once_more(writer: AsyncWriter) -> Outcome:
    outcome = Outcome()
    try:
        outcome.published.append((await writer.publish()).version)
    except DeltastoreError as error:
        outcome.code, outcome.message = error.code, str(error)
    return outcome
