"""A trainer of several ranks in one process: one model, of which every rank holds a part."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

import numpy as np

from deltastore.errors import DeltastoreError
from deltastore.stores.base import Store
from deltastore.writer.opening import open_writer
from deltastore.writer.published import Published
from deltastore.writer.publishing import AsyncWriter
from tests.doubles.models import Bits, Tensors, change
from tests.layout.partitions import Split, parts_of, split_model

from .ranks import RankStore

__all__ = ["Outcome", "Rank", "Team", "errors_of", "load", "told"]

Outcome = Published | BaseException
Made = TypeVar("Made")
TIMEOUT = 30.0


def load(model: Tensors, version: Bits) -> None:
    """Put a version's bits into a model."""
    for name, old in version.items():
        model[name].view(old.dtype)[...] = old


def told(outcome: object, code: str, *words: str) -> None:
    """It is an error with this code, whose text has these words."""
    assert isinstance(outcome, DeltastoreError), outcome
    assert outcome.code == code, outcome
    for word in words:
        assert word in str(outcome), outcome


def errors_of(outcomes: Sequence[Outcome | None]) -> list[str]:
    """The codes of what was raised, by rank; "" where nothing was."""
    return [one.code if isinstance(one, DeltastoreError) else "" for one in outcomes]


@dataclass
class Rank:
    """One process: its way to the store, and its writer once it has one."""

    store: RankStore
    writer: AsyncWriter | None = None


@dataclass
class Team:
    """All ranks of one incarnation of a trainer."""

    model: Tensors
    split: Split
    ranks: list[Rank]
    run: str = "r1"
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        store: Store,
        model: Tensors,
        ranks: int = 3,
        *,
        style: str = "any",
        seed: int = 1,
        watch: Callable[[str, bytes], None] | None = None,
        run: str = "r1",
        **options: Any,
    ) -> Self:
        """Ranks that have not opened their writers yet."""
        split = split_model(np.random.default_rng(seed), model, ranks, style)
        return cls(model, split, [Rank(RankStore(store, watch)) for _ in range(ranks)], run, options)

    @classmethod
    async def opened(cls, store: Store, model: Tensors, ranks: int = 3, **options: Any) -> Self:
        """Ranks that are an epoch."""
        team = cls.of(store, model, ranks, **options)
        for outcome in await team.open():
            if isinstance(outcome, BaseException):
                raise outcome
        return team

    async def open(self, **extra: Any) -> list[BaseException | None]:
        """Open all writers at once; what each rank met."""

        async def one(rank: int) -> None:
            held = self.ranks[rank]
            options = {"timeout": TIMEOUT, "threads": 1, "pack_bytes": 200, **self.options, **extra}
            held.writer = await open_writer(
                held.store,
                parts_of(self.model, self.split[rank]),
                rank=rank,
                writers=len(self.ranks),
                run=self.run,
                **options,
            )

        return await self.all(one)

    async def open_rank(self, number: int, **options: Any) -> None:
        """One rank starts; members wait longer than rank 0, so that they hear what it says."""
        held, usual = self.ranks[number], {"rank": number, "timeout": 10.0, "threads": 1}
        held.writer = await open_writer(
            held.store,
            parts_of(self.model, self.split[number]),
            **{"writers": len(self.ranks), "run": self.run, **usual, **options},
        )

    async def all(self, one: Callable[[int], Any], among: Sequence[int] | None = None) -> list[Any]:
        """Do something on all ranks at once; the casualties of their stores strike the task of their rank."""
        numbers = range(len(self.ranks)) if among is None else among
        tasks = [asyncio.ensure_future(one(number)) for number in numbers]
        for number, task in zip(numbers, tasks, strict=True):
            self.ranks[number].store.victim = task
        return await asyncio.gather(*tasks, return_exceptions=True)

    async def publish(self, among: Sequence[int] | None = None, **options: Any) -> list[Outcome]:
        """Publish from all ranks at once. Only rank 0 says what kind of version it shall be."""

        async def one(rank: int) -> Published:
            return await self.writer(rank).publish(**_for_rank(rank, options))

        return await self.all(one, among)

    async def agreed(self, **options: Any) -> Published:
        """Publish, and all ranks say the same."""
        outcomes = await self.publish(**options)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        versions = {
            (one.version, one.kind, one.slot, one.changed) for one in outcomes if isinstance(one, Published)
        }
        if len(versions) != 1 or not isinstance(outcomes[0], Published):
            raise AssertionError(f"ranks do not agree: {outcomes}")
        return outcomes[0]

    def writer(self, rank: int) -> AsyncWriter:
        writer = self.ranks[rank].writer
        if writer is None:
            raise AssertionError(f"rank {rank} has no writer")
        return writer

    @property
    def in_doubt(self) -> list[bool]:
        """Whether each rank is in doubt about a version."""
        return [self.writer(rank)._committing.in_doubt for rank in range(len(self.ranks))]

    def step(self, seed: int, count: int = 12) -> None:
        """Change some elements."""
        change(self.model, np.random.default_rng(seed), count)


def _for_rank(rank: int, options: dict[str, Any]) -> dict[str, Any]:
    return options if rank == 0 else {key: value for key, value in options.items() if key == "step"}
