"""Any history of trainers, zombies, rollbacks, readers and failures: engines hold whole versions only."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from deltastore.errors import FencedError, NotFoundError, StoreError, TornError
from deltastore.format.records import AnchorRecord, DeltaRecord, record_key
from deltastore.kernels.rows import StagedBits
from deltastore.layout.live import LiveWeights
from deltastore.log import Log
from deltastore.reader.following import AsyncReader
from deltastore.reader.host import HostTargets
from deltastore.reader.opening import open_reader
from deltastore.stores.base import Data
from deltastore.stores.settled import create_settled
from deltastore.validate import validate
from deltastore.writer.opening import open_writer
from deltastore.writer.publishing import AsyncWriter
from deltastore.writer.whole import create_stream
from tests.doubles.forging import append_foreign
from tests.doubles.models import Bits, Tensors, bits, blank, change, copy_of, cut_table, differing, tiny_model
from tests.doubles.partial import up_to_the_middle_of
from tests.doubles.stores import WatchedStore, fail_at, fail_from, failure, memory_store

Result = TypeVar("Result")
seeds = st.integers(0, 1 << 20)
choices = st.integers(0, 1 << 20)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is gained by waiting for a store in memory."""
    assert create_settled.__kwdefaults__ is not None
    monkeypatch.setattr(create_settled, "__kwdefaults__", {"pauses": (0, 0)})


class HoldingStore(WatchedStore):
    """May keep a commit back: the client sees failures, and the request is executed later or never."""

    def __init__(self) -> None:
        super().__init__(memory_store())
        self.holding = False
        self.held: tuple[str, bytes] | None = None

    async def put_if_absent(self, key: str, data: Data) -> bool:
        if self.holding:
            self.held = (key, bytes(data))
            raise failure(key)
        return await super().put_if_absent(key, data)


@dataclass
class Writing:
    """A writer and the model that it publishes."""

    writer: AsyncWriter
    model: Tensors


@dataclass
class Reading:
    """A reader and the tensors that it keeps."""

    reader: AsyncReader
    tensors: Tensors


class Histories(RuleBasedStateMachine):
    """What may happen to a stream, one thing after another.

    ``history``: the bits of every version; ``doubts``: those of each manifest, by its nonce, that was put
    into the log without anybody being told whether it got there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.store = HoldingStore()
        self.history: dict[int, Bits] = {}
        self.doubts: dict[str, Bits] = {}
        self.readers: list[Reading] = []
        self.zombies: list[Writing] = []

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.runner.run(work)

    @initialize()
    def begin(self) -> None:
        model = tiny_model()
        self.run(create_stream(self.store, LiveWeights(cut_table(model, 8, 2), model)))
        self.history[0] = bits(model)
        self.current = Writing(self.run(open_writer(self.store, model, pack_bytes=150)), model)

    def learn(self) -> None:
        """Versions that nobody was told of are what was being published when the outcome got lost."""

        async def unknown() -> list[AnchorRecord | DeltaRecord]:
            return [
                record
                async for record in Log(self.store.inner).forwards()
                if isinstance(record, AnchorRecord | DeltaRecord) and record.version not in self.history
            ]

        for record in self.run(unknown()):
            assert record.version == max(self.history) + 1
            self.history[record.version] = self.doubts.pop(record.nonce)

    def publish(self, anchor: bool, background: bool = False) -> None:
        """Publish the model as it is now; whatever is raised, what is left in doubt is noted."""
        now = bits(self.current.model)
        try:
            published = self.run(self.published(anchor, background))
        except StoreError:
            pending = self.current.writer._committing._epoch._pending  # type: ignore[attr-defined]
            if pending is not None:
                self.doubts.setdefault(pending.nonce, now)
            raise
        else:
            self.doubts[published.nonce] = now
        finally:
            self.learn()
        assert published.version == max(self.history)

    async def published(self, anchor: bool, background: bool) -> AnchorRecord | DeltaRecord:
        """The manifest of a new version; in the background while the model goes on to something else."""
        if background:
            publishing = await self.current.writer.publish_async(anchor=anchor)
            change(self.current.model, np.random.default_rng(0), 9)
            version = (await publishing).version
        else:
            version = (await self.current.writer.publish(anchor=anchor)).version
        return await Log(self.store.inner).manifest(version)

    @rule(seed=seeds, count=st.sampled_from([0, 1, 5, 60]), anchor=st.booleans(), background=st.booleans())
    def a_trainer_publishes(self, seed: int, count: int, anchor: bool, background: bool) -> None:
        change(self.current.model, np.random.default_rng(seed), count)
        self.publish(anchor, background)

    @rule(
        seed=seeds,
        call=st.integers(1, 25),
        lasting=st.booleans(),
        when=st.sampled_from(["before", "after"]),
        anchor=st.booleans(),
        background=st.booleans(),
    )
    def a_publish_fails(
        self, seed: int, call: int, lasting: bool, when: str, anchor: bool, background: bool
    ) -> None:
        change(self.current.model, np.random.default_rng(seed), 6)
        self.store.forget()
        setattr(self.store, when, fail_from(call) if lasting else fail_at(call))
        with suppress(StoreError):
            self.publish(anchor, background)
        self.store.before = self.store.after = None

    @rule(seed=seeds, anchor=st.booleans(), background=st.booleans())
    def a_commit_is_held_back(self, seed: int, anchor: bool, background: bool) -> None:
        change(self.current.model, np.random.default_rng(seed), 6)
        self.store.holding, self.store.held = True, None
        with pytest.raises(StoreError):
            self.publish(anchor, background)
        self.store.holding = False

    @precondition(lambda self: self.store.held is not None)
    @rule()
    def it_arrives_after_all(self) -> None:
        assert self.store.held is not None
        key, data = self.store.held
        self.store.held = None
        self.run(self.store.inner.put_if_absent(key, data))
        self.learn()

    @rule(back=choices, known=st.booleans())
    def a_new_trainer_takes_over(self, back: int, known: bool) -> None:
        version = sorted(self.history)[back % len(self.history)]
        model = copy_of(self.current.model)
        for name, old in self.history[version].items():
            model[name].view(old.dtype)[...] = old
        if not known:
            change(model, np.random.default_rng(back), 3)
        self.zombies.append(self.current)
        self.current = Writing(self.run(open_writer(self.store, model, pack_bytes=150)), model)
        if known:
            assert self.current.writer.version is not None
            assert differing(self.history[self.current.writer.version], self.history[version]) == []

    @precondition(lambda self: self.zombies)
    @rule(which=choices, seed=seeds, anchor=st.booleans())
    def a_zombie_publishes(self, which: int, seed: int, anchor: bool) -> None:
        zombie = self.zombies[which % len(self.zombies)]
        change(zombie.model, np.random.default_rng(seed), 5)
        tip = self.run(Log(self.store).tip())
        with pytest.raises(FencedError):
            self.run(zombie.writer.publish(anchor=anchor))
        assert self.run(Log(self.store).tip()) == tip

    @rule()
    def a_later_release_writes_a_label(self) -> None:
        self.run(append_foreign(self.store.inner))

    @precondition(lambda self: len(self.readers) < 4)
    @rule(loaded=st.booleans(), version=choices)
    def an_engine_starts(self, loaded: bool, version: int) -> None:
        tensors = blank(self.current.model)
        if loaded:
            for name, old in self.history[sorted(self.history)[version % len(self.history)]].items():
                tensors[name].view(old.dtype)[...] = old
        self.readers.append(Reading(self.run(open_reader(self.store, tensors)), tensors))

    @precondition(lambda self: self.readers)
    @rule(which=choices)
    def an_engine_follows(self, which: int) -> None:
        one = self.readers[which % len(self.readers)]
        self.run(one.reader.sync())
        assert one.reader.version == max(self.history)

    @precondition(lambda self: self.readers)
    @rule(which=choices, version=choices)
    def an_engine_goes_to_a_version(self, which: int, version: int) -> None:
        one = self.readers[which % len(self.readers)]
        wanted = version % (max(self.history) + 2)
        if wanted in self.history:
            self.run(one.reader.sync(wanted))
            assert one.reader.version == wanted
        else:
            with pytest.raises(NotFoundError):
                self.run(one.reader.sync(wanted))

    @precondition(lambda self: self.readers)
    @rule(which=choices, call=st.integers(1, 30))
    def a_fetch_fails(self, which: int, call: int) -> None:
        one = self.readers[which % len(self.readers)]
        self.store.forget()
        self.store.before = fail_at(call)
        with suppress(StoreError):
            self.run(one.reader.sync())
        self.store.before = None

    @precondition(lambda self: self.readers)
    @rule(which=choices, after=st.integers(1, 4))
    def an_apply_stops_half_way(self, which: int, after: int) -> None:
        one = self.readers[which % len(self.readers)]
        real = HostTargets.scatter

        def scatter(targets: HostTargets, new: StagedBits) -> None:
            part = up_to_the_middle_of(targets.pieces.table, new, after)
            real(targets, new if part is None else part)
            if part is not None:
                raise RuntimeError("half way")

        with pytest.MonkeyPatch.context() as patch, suppress(TornError):
            patch.setattr(HostTargets, "scatter", scatter)
            self.run(one.reader.sync())

    @rule()
    def an_operator_validates(self) -> None:
        assert self.run(validate(self.store)).problems == ()

    @invariant()
    def every_engine_holds_the_version_that_it_reports(self) -> None:
        for one in self.readers:
            assert one.reader.torn == (one.reader.version is None) or one.reader.version is None
            if one.reader.version is not None:
                assert differing(one.tensors, self.history[one.reader.version]) == []

    @invariant()
    def versions_ascend_and_every_slot_has_one_record(self) -> None:
        async def collect() -> tuple[list[int], int]:
            records = [record async for record in Log(self.store.inner).forwards()]
            assert [record.slot for record in records] == list(range(len(records)))
            assert await self.store.inner.stat(record_key(len(records))) is None
            return [one.version for one in records if isinstance(one, AnchorRecord | DeltaRecord)], len(
                records
            )

        versions, _ = self.run(collect())
        assert versions == sorted(self.history)

    def teardown(self) -> None:
        try:
            if self.history:
                self.the_end()
        finally:
            self.runner.close()

    def the_end(self) -> None:
        """Whatever happened, the trainer can publish, a new engine gets it, and the stream is sound."""
        change(self.current.model, np.random.default_rng(0), 3)
        self.publish(anchor=False)
        self.readers.append(
            Reading(self.run(open_reader(self.store, tensors := blank(self.current.model))), tensors)
        )
        for one in self.readers:
            self.run(one.reader.sync())
            assert one.reader.version == max(self.history)
        self.every_engine_holds_the_version_that_it_reports()
        assert self.run(validate(self.store)).problems == ()


TestAnyHistory = Histories.TestCase
TestAnyHistory.settings = settings(
    max_examples=60, stateful_step_count=25, suppress_health_check=[HealthCheck.too_slow]
)
