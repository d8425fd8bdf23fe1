"""Trainers of several ranks, their stores, engines, and what must be true of them at any time."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from hypothesis.stateful import RuleBasedStateMachine, invariant

from deltastore.errors import DeltastoreError
from deltastore.stores.faults import Faults, FaultyStore
from deltastore.writer.published import Published
from tests.doubles.models import Tensors, bits, change, copy_of, tiny_model
from tests.doubles.stores import memory_store
from tests.doubles.training import Engine

from .meddling import meddle
from .ranks import Casualty, Dead, Outage, RankStore
from .teams import Team, load
from .truth import Truth, bits_now
from .virtual import VirtualLoop

__all__ = ["Following", "Harm", "World"]

Result = TypeVar("Result")
Harm = Casualty | Outage | None


@dataclass
class Following:
    """An engine, its way to the store, and the versions it has held."""

    engine: Engine
    store: RankStore
    seen: list[int]


class World(RuleBasedStateMachine):
    """The state of a history, and how it is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner(loop_factory=VirtualLoop)
        self.inner = memory_store()
        self.truth = Truth(self.inner)
        self.teams: list[Team] = []
        self.engines: list[Following] = []
        self.count = 0
        self.model: Tensors = tiny_model()
        self.faulty = FaultyStore(self.inner, Faults(), 0)
        self.sound = True

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.runner.run(work)

    def team_of(self, ranks: int, style: str, seed: int, source: str) -> Team:
        """A restarted trainer: what it has loaded is the newest version, an older one, or none."""
        model = copy_of(self.model)
        versions = sorted(self.truth.history)
        load(
            model, self.truth.history[versions[-1] if source == "newest" else versions[seed % len(versions)]]
        )
        if source == "unknown":
            change(model, np.random.default_rng(seed), 5)
        watch = self.truth.watch(bits_now(model))
        run = "r1" if seed % 3 else f"r{seed}"
        return Team.of(self.faulty, model, ranks, style=style, seed=seed, watch=watch, run=run, timeout=8.0)

    def heard(self, team: Team, outcomes: list[Any]) -> None:
        """What the ranks were told must be true, and what was raised must be an error on purpose."""
        for outcome in outcomes:
            if isinstance(outcome, Published):
                self.truth.told(outcome, bits(team.model))
            elif outcome is not None:
                assert isinstance(outcome, DeltastoreError | asyncio.CancelledError | Dead), repr(outcome)

    def strike(self, team: Team, rank: int, harm: Harm) -> None:
        store = team.ranks[rank % len(team.ranks)].store
        if isinstance(harm, Casualty):
            store.strike(harm)
        if isinstance(harm, Outage):
            store.outage = harm

    def calm(self, team: Team) -> None:
        for rank in team.ranks:
            rank.store.strike(None)
            rank.store.outage = None

    def publish(self, team: Team, seed: int, count: int, rank: int, harms: Any, anchor: bool) -> None:
        change(team.model, np.random.default_rng(seed), count)
        for number, harm in enumerate(harms):
            self.strike(team, rank + number, harm)
        self.count += 1
        for held in team.ranks:
            held.store.meddle = lambda: meddle(self.inner, team, votes=seed % 3 == 0)
        step: dict[str, Any] = {"step": self.count} if seed % 2 else {}
        self.heard(team, self.run(team.publish(anchor=anchor, **step)))
        self.calm(team)

    def look(self, one: Following) -> None:
        """A reader is at a whole version, and its versions ascend."""
        self.run(self.truth.check(self.model))
        version = one.engine.reader.version
        if version is not None:
            assert one.engine.wrong(self.truth.history) == []
            one.seen.append(version)
            assert one.seen == sorted(one.seen)

    def last_words(self, team: Team) -> None:
        """A trainer that is whole and not fenced can publish within a few tries, whatever happened to it."""
        if any(rank.store.dead for rank in team.ranks):
            return
        said: list[Any] = []
        for _ in range(3):
            said = self.run(team.publish())
            self.heard(team, said)
            codes = {one.code for one in said if isinstance(one, DeltastoreError)}
            if not codes or "fenced" in codes:
                return
        raise AssertionError(said)

    @invariant()
    def everything_holds(self) -> None:
        if self.truth.history:
            self.run(self.truth.check(self.model))
            for one in self.engines:
                self.look(one)

    def teardown(self) -> None:
        try:
            if self.truth.history:
                self.the_end()
        finally:
            self.runner.close()

    def the_end(self) -> None:
        """Once the store is well again, whoever may publish does, a new trainer too, and engines follow."""
        self.run(self.faulty.settle())
        for team in self.teams:
            for rank in team.ranks:
                self.run(rank.store.deliver())
                rank.store.inner = self.inner
        self.everything_holds()
        if self.teams:
            self.last_words(self.teams[-1])
        team = self.team_of(2, "any", 1, "newest")
        for rank in team.ranks:
            rank.store.inner = self.inner
        assert self.run(team.open()) == [None, None]
        self.publish(team, 5, 9, 0, (), False)
        self.everything_holds()
        assert max(self.truth.acknowledged) == max(self.truth.history)
        for one in self.engines:
            one.store.inner = self.inner
            self.run(one.engine.reader.sync())
            assert one.engine.reader.version == max(self.truth.history)
            self.look(one)
        self.everything_holds()
