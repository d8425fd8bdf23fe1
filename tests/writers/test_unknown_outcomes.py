"""Whatever reply is lost and whoever is stopped: a version is committed or not, and all learn which."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deltastore.errors import ConflictError, FencedError
from deltastore.format.records import record_key
from deltastore.format.votes import Attempt
from deltastore.writer.attempts import aborted_key, attempt_key
from deltastore.writer.exchange import create_sealed
from deltastore.writer.opening import open_writer
from deltastore.writer.published import Published
from tests.doubles.forging import append_foreign

from .ranks import Casualty, Outage
from .streams import Scene
from .teams import errors_of, told
from .virtual import virtual

WRITES = frozenset({"put", "put_if_absent"})


@pytest.mark.parametrize("how", ["refused", "lost", "held"])
@pytest.mark.parametrize("anchor", [False, True])
@virtual
async def test_the_coordinator_does_not_know_the_outcome(how: Any, anchor: bool) -> None:
    scene = await Scene.set()
    team = await scene.team()
    team.step(1)
    team.ranks[0].store.outage = Outage("log/", how, frozenset({"put_if_absent", "get"}))
    fetched = team.ranks[0].store.outage
    team.ranks[0].store.outage = None
    real = team.ranks[0].store.put_if_absent

    async def put_if_absent(key: str, data: Any) -> bool:
        if key.startswith("log/"):
            team.ranks[0].store.outage = fetched
        return await real(key, data)

    team.ranks[0].store.put_if_absent = put_if_absent  # type: ignore[method-assign]
    outcomes = await team.publish(anchor=anchor)
    first = Published if how == "lost" else ConflictError
    told(outcomes[0], "store_failed")
    assert all(isinstance(one, first) for one in outcomes[1:]), outcomes
    assert team.in_doubt == [True, how != "lost", how != "lost"]
    assert errors_of(outcomes[1:]) == (["", ""] if how == "lost" else ["undecided"] * 2)
    scene.remember(1)
    team.ranks[0].store.put_if_absent = real  # type: ignore[method-assign]
    team.ranks[0].store.outage = None
    if how == "held":
        await team.ranks[0].store.deliver()
    team.step(2)
    done = await team.agreed()
    assert done.version == 2
    assert done.changed <= 12
    scene.remember(2)
    assert team.in_doubt == [False] * 3
    await scene.check()


@pytest.mark.spec("DS087")
@pytest.mark.parametrize("arrives", [False, True])
@virtual
async def test_in_doubt_while_another_epoch_begins(arrives: bool) -> None:
    """The version may have landed before the fence, or never will: members learn which."""
    scene = await Scene.set()
    team = await scene.team()
    team.step(1)
    changed = scene.apart()
    team.ranks[0].store.outage = Outage("log/", "held", WRITES)
    outcomes = await team.publish()
    assert errors_of(outcomes) == ["store_failed", "undecided", "undecided"]
    team.ranks[0].store.outage = None
    if arrives:
        await team.ranks[0].store.deliver()
        scene.remember(1)
    newer = await open_writer(scene.store, changed)
    assert newer.version == (1 if arrives else None)
    if not arrives:
        await team.ranks[0].store.deliver()
    for outcome in await team.publish():
        assert isinstance(outcome, FencedError)
    assert await scene.versions() == ([0, 1] if arrives else [0])
    await scene.check()


@virtual
async def test_a_version_in_doubt_whose_slot_a_label_took() -> None:
    """It never will be committed: members are told, and the next call publishes it anew."""
    scene = await Scene.set()
    team = await scene.team()
    team.step(1)
    team.ranks[0].store.outage = Outage("log/", "held", WRITES)
    assert errors_of(await team.publish()) == ["store_failed", "undecided", "undecided"]
    team.ranks[0].store.outage = None
    await append_foreign(scene.store)
    assert team.in_doubt == [True] * 3
    await scene.published(team)
    assert await scene.versions() == [0, 1]
    await team.ranks[0].store.deliver()
    await scene.check()


@pytest.mark.parametrize("prefix", ["prepared/", "packs/", "log/", ""])
@pytest.mark.parametrize("anchor", [False, True])
@virtual
async def test_lost_replies_change_nothing(prefix: str, anchor: bool) -> None:
    """Every create is applied and its reply lost, on all ranks: each is settled by reading it back."""
    scene = await Scene.set()
    team = await scene.team()
    for rank in team.ranks:
        rank.store.outage = Outage(prefix, "lost", frozenset({"put_if_absent"}))
    for seed in range(3):
        team.step(seed)
        await scene.published(team, anchor=anchor)
    await scene.check()


@pytest.mark.parametrize("how", ["refused", "lost", "held"])
@virtual
async def test_the_word_that_an_attempt_is_over_does_not_arrive(how: Any) -> None:
    """Members stay in doubt until the next attempt tells them."""
    scene = await Scene.set()
    team = await scene.team()
    team.step(1)
    aborted = aborted_key(2, 0)
    team.ranks[0].store.outage = Outage(aborted, how, WRITES)
    outcomes = await team.publish([0, 1])
    told(outcomes[0], "aborted")
    assert errors_of(outcomes[1:]) == ["aborted" if how == "lost" else "undecided"]
    team.ranks[0].store.outage = None
    team.step(2)
    await scene.recovers(team)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 16))
@virtual
async def test_the_coordinator_is_cancelled_at_any_call(number: int, when: Any) -> None:
    await interrupted(0, Casualty(number, when, "cancelled"), anchor=number % 3 == 0)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 16))
@virtual
async def test_a_member_is_cancelled_at_any_call(number: int, when: Any) -> None:
    await interrupted(1, Casualty(number, when, "cancelled"), anchor=number % 3 == 0)


async def interrupted(rank: int, casualty: Casualty, *, anchor: bool) -> None:
    """One rank is stopped in the middle. All may publish again at once, and nothing is lost or mixed."""
    scene = await Scene.set()
    team = await scene.team(timeout=4.0)
    team.step(1)
    team.ranks[rank].store.strike(casualty)
    outcomes = await team.publish(anchor=anchor)
    struck = team.ranks[rank].store.casualty is None
    team.ranks[rank].store.strike(None)
    assert struck == isinstance(outcomes[rank], asyncio.CancelledError) or not any(errors_of(outcomes))
    scene.remember(1)
    assert await scene.versions() == [0, 1] or not any(isinstance(one, Published) for one in outcomes)
    doubtful = team.in_doubt[0]
    team.step(2)
    for _ in range(2):
        outcomes = await team.publish()
        if not any(errors_of(outcomes)):
            break
    done = outcomes[0]
    assert isinstance(done, Published)
    assert done.version == len(await scene.versions()) - 1 <= 2
    assert done.version == 2 or not doubtful
    scene.remember(done.version)
    team.step(3)
    await scene.published(team)
    await scene.check()


@virtual
async def test_a_whole_attempt_that_was_cancelled_while_it_was_opened() -> None:
    """Members may have copied their weights for it, and then hold no version: the next one is whole too."""
    scene = await Scene.set()
    team = await scene.team(timeout=4.0)
    team.step(1)
    team.ranks[0].store.outage = Outage("prepared/", "lost", WRITES | {"get"})
    outcomes = await team.publish(anchor=True)
    told(outcomes[0], "store_failed")
    assert errors_of(outcomes[1:]) == ["undecided"] * 2
    team.ranks[0].store.outage = None
    await scene.published(team)
    await scene.check()


@pytest.mark.spec("DS088")
@pytest.mark.parametrize("reads", range(1, 9))
@virtual
async def test_the_log_is_believed_before_any_word_about_it(reads: int) -> None:
    """Between two looks of a member its version lands, and the next attempt is opened."""
    scene = await Scene.set()
    team = await scene.team(2)
    team.step(1)
    team.ranks[0].store.outage = Outage("log/", "held", WRITES)
    store, real, seen = team.ranks[1].store, team.ranks[1].store.get, 0

    async def get(key: str, *, limit: int) -> bytes:
        nonlocal seen
        try:
            return await real(key, limit=limit)
        finally:
            seen += key == record_key(4) and bool(team.ranks[0].store.held)
            if seen == reads and team.ranks[0].store.held:
                await team.ranks[0].store.deliver()
                first = await scene.store.get(attempt_key(2, 0), limit=9999)
                fields = Attempt.from_bytes(first, "").model_dump(exclude={"format", "kind", "sha256"})
                await create_sealed(
                    scene.store, attempt_key(2, 1), Attempt.seal_new(**fields | {"attempt": 1})
                )

    store.get = get  # type: ignore[method-assign]
    outcomes = await team.publish()
    assert isinstance(outcomes[1], Published)
    scene.remember(1)
    await scene.check()
