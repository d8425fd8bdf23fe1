"""Any history of trainers of several ranks, their zombies, restarts, failures and readers."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from deltastore.errors import DeltastoreError
from deltastore.layout.live import LiveWeights
from deltastore.log import Log
from deltastore.stores.faults import Fault, Faults, FaultyStore
from deltastore.stores.faults.plan import Kind
from deltastore.writer.whole import create_stream
from tests.doubles.forging import append_foreign
from tests.doubles.models import bits, change, copy_of, cut_table, differing
from tests.doubles.training import Engine
from tests.layout.partitions import STYLES

from .ranks import Casualty, Outage, RankStore
from .teams import load
from .world import Following, World

__all__ = ["Histories"]

Result = TypeVar("Result")

seeds = st.integers(0, 1 << 20)
choices = st.integers(0, 1 << 20)
casualties = st.builds(
    Casualty,
    number=st.integers(1, 24),
    when=st.sampled_from(["before", "after"]),
    how=st.sampled_from(["cancelled", "cancelled", "meddled", "meddled", "dead"]),
)
outages = st.builds(
    Outage,
    prefix=st.sampled_from(["log/", "log/", "prepared/", "packs/", "anchors/", "joining/", ""]),
    how=st.sampled_from(["refused", "lost", "held"]),
    operations=st.sampled_from(
        [
            frozenset({"put", "put_if_absent"}),
            frozenset({"put", "put_if_absent", "get", "stat", "get_range"}),
            frozenset({"get"}),
        ]
    ),
)
_KINDS: tuple[Kind, ...] = ("refused", "lost", "late", "repeated", "truncated", "stale_list", "delayed")
plans = st.sampled_from([0.0, 0.0, 0.01, 0.04, 0.1]).map(
    lambda rate: Faults(tuple(Fault(kind, rate) for kind in _KINDS) if rate else (), land_after=5)
)


class Histories(World):
    """What may happen, one thing after another; within one of them all ranks run at once."""

    @initialize(plan=plans, seed=seeds)
    def begin(self, plan: Faults, seed: int) -> None:
        self.faulty = FaultyStore(self.inner, plan, seed)
        self.sound = not plan.faults
        self.run(create_stream(self.inner, LiveWeights(cut_table(self.model, 16, 2), self.model)))
        self.truth.history[0] = bits(self.model)
        nonce = self.run(self._first_nonce())
        self.truth.meant[nonce] = bits(self.model)

    async def _first_nonce(self) -> str:
        return (await Log(self.inner).newest_manifest()).nonce

    @rule(
        ranks=st.integers(1, 4),
        style=st.sampled_from([*STYLES, "any"]),
        seed=seeds,
        source=st.sampled_from(["newest", "newest", "older", "unknown"]),
        harm=st.one_of(st.none(), st.none(), casualties, outages),
    )
    def a_trainer_starts(self, ranks: int, style: str, seed: int, source: str, harm: Any) -> None:
        team = self.team_of(ranks, style, seed, source)
        self.strike(team, seed, harm)
        outcomes = self.run(team.open())
        self.heard(team, outcomes)
        self.calm(team)
        if not any(outcomes):
            self.teams.append(team)
        elif not self.faulty.journal and harm is None:
            raise AssertionError(outcomes)

    @precondition(lambda self: self.teams)
    @rule(
        seed=seeds,
        count=st.sampled_from([0, 1, 8, 60]),
        rank=st.sampled_from([0, 0, 1, 2, 3]),
        harms=st.tuples(st.one_of(st.none(), casualties, outages), st.one_of(st.none(), casualties)),
        anchor=st.sampled_from([False, False, True]),
        again=st.booleans(),
    )
    def the_trainer_publishes(
        self, seed: int, count: int, rank: int, harms: Any, anchor: bool, again: bool
    ) -> None:
        team = self.teams[-1]
        self.publish(team, seed, count, rank, harms, anchor)
        if again:
            self.publish(team, seed + 1, 2, 0, (), False)
            if self.sound:
                self.last_words(team)

    @precondition(lambda self: self.teams)
    @rule(
        seed=seeds,
        how=st.sampled_from(["refused", "lost", "held"]),
        number=st.integers(4, 16),
        anchor=st.booleans(),
        arrives=st.booleans(),
    )
    def an_outcome_is_unknown(self, seed: int, how: Any, number: int, anchor: bool, arrives: bool) -> None:
        """Rank 0 loses the log while it commits, and somebody objects to what others have voted for."""
        team = self.teams[-1]
        rumour = Casualty(number, "before", "meddled")
        outage = Outage("log/", how, frozenset({"put_if_absent"}))
        self.publish(team, seed, 5, 0, (outage, rumour), anchor)
        if arrives:
            self.run(team.ranks[0].store.deliver())
        if self.sound:
            self.last_words(team)

    @precondition(lambda self: self.teams)
    @rule(seed=seeds, missing=st.integers(0, 3))
    def a_rank_takes_no_part(self, seed: int, missing: int) -> None:
        team = self.teams[-1]
        change(team.model, np.random.default_rng(seed), 4)
        among = [rank for rank in range(len(team.ranks)) if rank != missing % len(team.ranks)]
        self.heard(team, self.run(team.publish(among)))

    @precondition(lambda self: self.teams)
    @rule(seed=seeds, anchor=st.booleans())
    def the_trainer_goes_on_meanwhile(self, seed: int, anchor: bool) -> None:
        """Weights change as soon as ``publish_async`` returns, and none of that is in the version."""
        team = self.teams[-1]
        change(team.model, np.random.default_rng(seed), 6)
        frozen, kept = bits(team.model), copy_of(team.model)

        async def both() -> list[Any]:
            async def start(rank: int) -> Any:
                return await team.writer(rank).publish_async(anchor=anchor and rank == 0)

            handles = await team.all(start)
            change(team.model, np.random.default_rng(seed + 1), 30)
            started = [one for one in handles if not isinstance(one, BaseException)]
            ended = await asyncio.gather(*(_result(one) for one in started), return_exceptions=True)
            return [*ended, *(one for one in handles if isinstance(one, BaseException))]

        watching = self.truth.meant.copy()
        outcomes = self.run(both())
        for nonce in self.truth.meant.keys() - watching.keys():
            self.truth.meant[nonce] = frozen
        load(team.model, frozen)
        self.heard(team, outcomes)
        assert differing(team.model, kept) == []

    @precondition(lambda self: len(self.teams) > 1)
    @rule(which=choices, seed=seeds, anchor=st.booleans(), beside=st.booleans())
    def a_zombie_publishes(self, which: int, seed: int, anchor: bool, beside: bool) -> None:
        zombie = self.teams[which % (len(self.teams) - 1)]
        change(zombie.model, np.random.default_rng(seed), 5)
        team = self.teams[-1]

        async def both() -> tuple[list[Any], list[Any]]:
            if not beside:
                return await zombie.publish(anchor=anchor), []
            one, other = await asyncio.gather(zombie.publish(anchor=anchor), team.publish())
            return one, other

        for one, outcomes in zip((zombie, team), self.run(both()), strict=True):
            self.heard(one, outcomes)
        self.run(self.truth.check(self.model))

    @precondition(lambda self: any(rank.store.held for team in self.teams for rank in team.ranks))
    @rule()
    def held_writes_arrive(self) -> None:
        for team in self.teams:
            for rank in team.ranks:
                self.run(rank.store.deliver())

    @rule()
    def garbage_is_collected(self) -> None:
        self.run(self.truth.check(self.model))
        self.run(self.truth.sweep())

    @rule()
    def a_later_release_writes_a_label(self) -> None:
        self.run(append_foreign(self.inner))

    @precondition(lambda self: len(self.engines) < 3)
    @rule()
    def an_engine_starts(self) -> None:
        store = RankStore(self.faulty)
        try:
            engine = self.run(Engine.start(store, self.model))
        except DeltastoreError:
            assert self.faulty.journal
        else:
            self.engines.append(Following(engine, store, []))

    @precondition(lambda self: self.engines)
    @rule(which=choices, lost=st.sampled_from(["", "", "packs/", "anchors/", "log/"]))
    def an_engine_follows(self, which: int, lost: str) -> None:
        one = self.engines[which % len(self.engines)]
        newest = one.engine.reader.newest
        one.store.outage = Outage(lost, "refused") if lost else None
        try:
            self.run(one.engine.reader.sync())
        except DeltastoreError:
            assert self.faulty.journal or lost
        one.store.outage = None
        assert one.engine.reader.newest >= newest
        self.look(one)


async def _result(handle: Any) -> Any:
    return await handle
