"""A member's memory of what is published: it moves when the log says so, and never else."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from deltastore.detect.snapshot import Snapshot
from deltastore.errors import ConflictError, CorruptError, FencedError
from deltastore.format.votes import Ending
from deltastore.layout.live import LiveWeights
from deltastore.layout.weights import digest_of
from deltastore.writer.attempts import aborted_key, objection_key, vote_key
from deltastore.writer.exchange import create_sealed
from deltastore.writer.opening import open_writer
from deltastore.writer.published import Published
from deltastore.writer.waiting import ticks
from tests.doubles.forging import append_foreign
from tests.doubles.models import bits, cut_table, tiny_model

from .ranks import Casualty, Outage
from .streams import Scene
from .teams import Team, errors_of, load
from .virtual import virtual

WRITES = frozenset({"put", "put_if_absent"})


async def copies_hold(scene: Scene, team: Team, version: int) -> bool:
    """Whether the copies of all ranks together are exactly this version."""
    model = scene.apart()
    load(model, scene.history[version])
    table = team.writer(0)._live.table
    total = sum([await team.writer(rank)._detector.digest() for rank in range(len(team.ranks))])
    return total % (1 << 64) == await digest_of(LiveWeights(table, model))


@pytest.mark.spec("DS088")
@virtual
async def test_the_copy_moves_only_when_the_version_is_committed() -> None:
    scene = await Scene.set()
    team = await scene.team()
    team.step(1)
    team.ranks[0].store.outage = Outage("log/", "held", WRITES)
    outcomes = await team.publish()
    assert errors_of(outcomes) == ["store_failed", "undecided", "undecided"]
    scene.remember(1)
    assert await copies_hold(scene, team, 0)
    for rank in (1, 2):
        assert errors_of(await team.publish([rank])) == ["undecided"]
    assert await copies_hold(scene, team, 0)
    team.ranks[0].store.outage = None
    await team.ranks[0].store.deliver()
    team.step(2)
    await scene.published(team)
    assert await scene.versions() == [0, 1, 2]
    assert await copies_hold(scene, team, 2)
    await scene.check()


async def stopped_after_its_vote(scene: Scene, team: Team) -> None:
    """Rank 1 is cancelled while it waits for the outcome; rank 0 goes on."""
    task = asyncio.ensure_future(team.publish([1]))
    coordinator = asyncio.ensure_future(team.publish([0]))
    async for _ in ticks(9):
        if await scene.keys(vote_key(2, 0, 1)):
            break
    victim = team.ranks[1].store.victim
    assert victim is not None
    victim.cancel()
    await asyncio.gather(task, coordinator)


@pytest.mark.spec("DS088")
@virtual
async def test_a_member_in_doubt_learns_that_its_version_landed() -> None:
    scene = await Scene.set()
    team = await scene.team(2)
    team.step(1)
    await stopped_after_its_vote(scene, team)
    assert team.in_doubt == [False, True]
    scene.remember(1)
    team.step(2)
    await scene.published(team)
    assert await copies_hold(scene, team, 2)
    await scene.check()


@pytest.mark.spec("DS088")
@pytest.mark.parametrize("end", ["aborted", "fenced"])
@virtual
async def test_a_member_in_doubt_learns_that_its_version_never_will(end: str) -> None:
    scene = await Scene.set()
    team = await scene.team(2)
    team.step(1)
    team.ranks[0].store.outage = Outage("log/", "refused", WRITES)
    await stopped_after_its_vote(scene, team)
    assert team.in_doubt == [True, True]
    team.ranks[0].store.outage = None
    if end == "fenced":
        await open_writer(scene.store, scene.apart())
        assert errors_of(await team.publish()) == ["fenced", "fenced"]
    else:
        await create_sealed(scene.store, aborted_key(2, 0), Ending.seal_new(rank=0, reason="enough"))
        assert errors_of(await team.publish([1])) == ["aborted"]
        assert await copies_hold(scene, team, 0)
    assert not team.in_doubt[1]
    await scene.check()


@pytest.mark.spec("DS087", "DS088")
@virtual
async def test_an_objection_is_no_outcome_for_those_who_have_voted() -> None:
    """Only the coordinator knows whether it came in time; whoever took it for the end would be wrong."""
    scene = await Scene.set()
    team = await scene.team()
    team.step(1)
    held = Outage("log/", "held", WRITES)
    team.ranks[0].store.outage = held
    task = asyncio.ensure_future(team.publish())
    async for _ in ticks(9):
        if team.ranks[0].store.held:
            break
    await create_sealed(scene.store, objection_key(2, 0), Ending.seal_new(rank=1, reason="I cannot"))
    await asyncio.sleep(3)
    await team.ranks[0].store.deliver()
    outcomes = await task
    scene.remember(1)
    assert errors_of(outcomes) == ["store_failed", "", ""]
    team.ranks[0].store.outage = None
    team.step(2)
    await scene.published(team)
    assert await copies_hold(scene, team, 2)
    await scene.check()


@virtual
async def test_a_member_of_a_dead_coordinator_is_not_hung() -> None:
    scene = await Scene.set()
    team = await scene.team()
    team.step(1)
    (outcome, other) = await team.publish([1, 2])
    for one in (outcome, other):
        assert isinstance(one, ConflictError)
        assert "rank 0 opened no attempt at a version within 40 s" in str(one)
    assert team.in_doubt == [False] * 3
    team.ranks[0].store.strike(Casualty(6, "before", "dead"))
    outcomes = await team.publish()
    assert [type(one).__name__ for one in outcomes[:1]] == ["Dead"]
    assert set(errors_of(outcomes[1:])) <= {"undecided", "aborted"}
    for _ in range(2):
        assert set(errors_of(await team.publish([1, 2]))) <= {"undecided", "aborted"}
    again = await scene.team(run="r2")
    await scene.published(again)
    assert errors_of(await team.publish([1, 2])) == ["fenced"] * 2
    await scene.check()


@pytest.mark.parametrize("how", ["truncated", "garbage"])
@virtual
async def test_a_vote_whose_reply_was_lost_and_that_reads_back_wrong(how: str) -> None:
    """It may stand there all the same, and count: the member is in doubt, not out."""
    scene = await Scene.set()
    team = await scene.team()
    team.step(1)
    store = team.ranks[1].store
    put, get = store.put_if_absent, store.get

    async def put_if_absent(key: str, data: Any) -> bool:
        await put(key, data)
        return False

    async def short(key: str, *, limit: int) -> bytes:
        data = await get(key, limit=limit)
        return data if key != vote_key(2, 0, 1) else data[:9] if how == "truncated" else b"{}"

    store.put_if_absent, store.get = put_if_absent, short  # type: ignore[method-assign]
    outcomes = await team.publish()
    assert isinstance(outcomes[1], CorruptError)
    assert errors_of([outcomes[0], outcomes[2]]) == ["", ""]
    assert team.in_doubt == [False, True, False]
    store.put_if_absent, store.get = put, get  # type: ignore[method-assign]
    scene.remember(1)
    team.step(2)
    await scene.published(team)
    assert await copies_hold(scene, team, 2)
    await scene.check()


@virtual
async def test_somebody_else_votes_as_this_rank() -> None:
    scene = await Scene.set()
    team = await scene.team(2)
    other = await Scene.set(tiny_model(5))
    foreign = await other.team(2)
    await foreign.agreed()
    vote = await other.store.get(vote_key(2, 0, 1), limit=9999)
    await scene.store.put_if_absent(vote_key(2, 0, 1), vote)
    team.step(1)
    outcomes = await team.publish()
    assert errors_of(outcomes) == ["aborted", "aborted"]
    assert "another process voted as rank 1" in str(outcomes[1])
    assert team.in_doubt == [False, False]
    await scene.published(team)
    assert await scene.versions() == [0, 1]
    await scene.check()


@virtual
async def test_a_foreign_version_in_the_log_makes_the_member_useless_not_wrong() -> None:
    """A store that loses the coordinator's fence: a member never builds on what it has not voted for."""
    scene = await Scene.set()
    team = await scene.team(2)
    twin = await Scene.set()
    strange = await twin.team(2)
    strange.step(3)
    await strange.agreed()
    record = (await twin.manifests())[-1]
    parent = (await scene.records())[-1]
    forged = type(record).seal_new(
        **{**record.model_dump(exclude={"format", "kind", "sha256"}), "parent": parent.sha256}
    )
    await scene.store.put_if_absent(f"log/{forged.slot:020d}.json", forged.to_bytes())
    outcomes = await team.publish()
    for outcome in outcomes:
        assert isinstance(outcome, ConflictError)
        assert outcome.code == "version_taken"


@virtual
async def test_a_copy_that_is_taken_anew_forgets_what_was_found_before() -> None:
    """Else patches of a version that came to nothing would be written over the new copy."""
    model = tiny_model()
    live = LiveWeights(cut_table(model, 16), model)
    copy = await Snapshot.of(live)
    before = bits(model)
    model["norm"].view(np.uint16)[4] ^= 5
    async for _ in copy.changes():
        pass
    load(model, before)
    await copy.retake()
    copy.committed()
    assert await digest_of(copy.published) == await digest_of(live)


@virtual
async def test_a_doubtful_version_a_cancelled_word_and_a_whole_one() -> None:
    """The coordinator is stopped while it tells that a version came to nothing; the next is stored whole."""
    scene = await Scene.set()
    team = await scene.team(2)
    team.step(1)
    team.ranks[0].store.outage = Outage("log/", "refused", WRITES)
    await team.publish()
    assert team.in_doubt[0]
    await append_foreign(scene.store)
    load(team.model, scene.history[0])
    team.ranks[0].store.outage = None
    real = team.ranks[0].store.put_if_absent

    async def put_if_absent(key: str, data: Any) -> bool:
        if key == aborted_key(2, 0):
            victim = team.ranks[0].store.victim
            assert victim is not None
            victim.cancel()
            await asyncio.Event().wait()
        return await real(key, data)

    team.ranks[0].store.put_if_absent = put_if_absent  # type: ignore[method-assign]
    await team.publish([0])
    team.ranks[0].store.put_if_absent = real  # type: ignore[method-assign]
    for number in range(3):
        outcomes = await team.publish(anchor=number < 2)
        if isinstance(outcomes[0], Published):
            scene.remember(outcomes[0].version)
        team.step(number + 10)
    outcomes = await team.publish()
    scene.remember(max(await scene.versions()))
    assert errors_of(outcomes) == ["", ""]
    assert await copies_hold(scene, team, max(scene.history))
    await scene.check()


@virtual
async def test_fenced_members_stay_fenced() -> None:
    scene = await Scene.set()
    team = await scene.team()
    await open_writer(scene.store, scene.apart())
    for _ in range(2):
        for outcome in await team.publish():
            assert isinstance(outcome, FencedError)
            assert "epoch 3" in str(outcome)
