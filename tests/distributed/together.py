"""One trainer of one process, or of four that hold a quarter of all elements each; in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from deltastore.layout.live_parts import PartTensors
from deltastore.layout.parts import Part, flat_parts
from deltastore.stores.base import Store
from deltastore.writer.opening import open_writer
from deltastore.writer.published import Published
from deltastore.writer.publishing import AsyncWriter

__all__ = ["WRITERS", "Together", "parts_of"]

WRITERS = 4

Result = TypeVar("Result")


def parts_of(model: Mapping[str, Any], rank: int) -> dict[str, tuple[Part, ...]]:
    """What one of ``WRITERS`` holds: its share of the elements of all tensors, one after another."""
    total = sum(tensor.size for tensor in model.values())
    first, end = total * rank // WRITERS, total * (rank + 1) // WRITERS
    parts, at = {}, 0
    for name, tensor in model.items():
        low, high = max(first, at) - at, min(end, at + tensor.size) - at
        if low < high:
            parts[name] = flat_parts(tensor.reshape(-1)[low:high], tensor.shape, low)
        at += tensor.size
    return parts


def all_parts(model: Mapping[str, Any]) -> PartTensors:
    """The whole model as the parts of all ranks, held by one process."""
    shares = [parts_of(model, rank) for rank in range(WRITERS)]
    return {name: [part for share in shares for part in share.get(name, ())] for name in model}


@dataclass(frozen=True)
class Together:
    """The writers of one trainer: what they do, all of them do at once."""

    writers: list[AsyncWriter]

    @classmethod
    async def open(
        cls,
        store: Store,
        model: Mapping[str, Any],
        writers: int,
        *,
        label: str,
        run: str,
        patience: float = 60,
    ) -> Self:
        """A trainer of ``writers`` processes, 1 or ``WRITERS``; raises when all of them have ended."""
        if writers == 1:
            return cls([await open_writer(store, all_parts(model), label=label)])
        ends = await asyncio.gather(
            *(
                open_writer(
                    store,
                    parts_of(model, rank),
                    rank=rank,
                    writers=WRITERS,
                    run=run,
                    timeout=patience,
                    label=label,
                )
                for rank in range(WRITERS)
            ),
            return_exceptions=True,
        )
        return cls(_all_well(ends))

    @property
    def version(self) -> int | None:
        """The version that all of them build on."""
        (version,) = {writer.version for writer in self.writers}
        return version

    @property
    def epoch(self) -> int:
        """Their epoch."""
        (epoch,) = {writer.epoch for writer in self.writers}
        return epoch

    async def tried(self, **options: Any) -> list[Published | BaseException]:
        """How a publish ends for each of them."""
        return await asyncio.gather(
            *(writer.publish(**options) for writer in self.writers), return_exceptions=True
        )

    async def publish(self, **options: Any) -> int:
        """Publish; raises what one of them raises. The version."""
        (version,) = {published.version for published in _all_well(await self.tried(**options))}
        return version


def _all_well(ends: list[Result | BaseException]) -> list[Result]:
    """What all of them returned; raises the first error, when all have ended."""
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    return [end for end in ends if not isinstance(end, BaseException)]
