"""Attempts at a version: what the coordinator accepts as votes, how it ends, and what it says of the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deltastore.errors import FencedError
from deltastore.format.records import record_key
from deltastore.format.votes import Attempt, Ending, Vote
from deltastore.writer.attempts import attempt_key, objection_key, vote_key
from deltastore.writer.exchange import create_sealed, fetch_sealed
from deltastore.writer.opening import open_writer
from tests.doubles.forging import append_foreign

from .ranks import Outage
from .streams import Scene
from .teams import errors_of, told
from .virtual import virtual
from .voting import changed, forged_votes

WRITES = frozenset({"put", "put_if_absent"})


FORGERIES: dict[str, tuple[dict[str, Any], str]] = {
    "attempt": ({"attempt": "0" * 64}, "is for another attempt"),
    "rank": ({"rank": 1}, "is in the name of another rank"),
    "nonce": ({"nonce": "0" * 32}, "is of a process that did not join"),
    "epoch": ({"epoch_nonce": "0" * 32}, "is of another epoch"),
    "parent": ({"parent": "0" * 64}, "builds on another version"),
    "no parent": ({"parent": None}, "builds on another version"),
    "claim": ({"claim": "0" * 64}, "is for other elements than it joined with"),
    "step": ({"step": 7}, "is of step 7, and the attempt of step 5"),
}


@pytest.mark.spec("DS086")
@pytest.mark.parametrize("what", FORGERIES)
@virtual
async def test_a_vote_that_contradicts_in_one_field(what: str) -> None:
    scene = await Scene.set()
    team = await scene.team()
    changes, words = FORGERIES[what]
    team.step(1)
    async with forged_votes(team, 2, lambda vote: changed(vote, **changes)):
        outcomes = await team.publish(step=5)
    told(outcomes[0], "aborted", "the vote of rank 2", words)
    for outcome in outcomes[1:]:
        told(outcome, "aborted", "version 1 was not published", "the vote of rank 2", words)
    assert await scene.versions() == [0]
    await scene.recovers(team)


@pytest.mark.spec("DS086")
@virtual
async def test_a_vote_without_a_step_goes_with_any() -> None:
    scene = await Scene.set()
    team = await scene.team()
    team.step(1)
    async with forged_votes(team, 1, lambda vote: changed(vote, step=None)):
        done = await team.agreed(step=5)
    scene.remember(done.version)
    await scene.check()


@pytest.mark.spec("DS086")
@pytest.mark.parametrize("steps", [(5, 5, 6), (5, 4, 5), (None, 5, 5), (5, None, 6)])
@virtual
async def test_steps_that_differ(steps: tuple[int | None, ...]) -> None:
    scene = await Scene.set()
    team = await scene.team()
    team.step(1)
    outcomes = await team.all(lambda rank: team.writer(rank).publish(step=steps[rank]))
    assert errors_of(outcomes) == ["aborted"] * 3
    assert "step" in str(outcomes[0])
    assert await scene.versions() == [0]
    await scene.recovers(team)


@virtual
async def test_a_version_that_a_member_was_not_asked_for() -> None:
    scene = await Scene.set()
    team = await scene.team()
    outcomes = await team.all(lambda rank: team.writer(rank).publish(version=7 if rank else 9))
    told(outcomes[0], "aborted", "was asked for version 7, and the attempt is at 9")
    outcomes = await team.all(lambda rank: team.writer(rank).publish(version=9))
    assert errors_of(outcomes) == ["", "", ""]
    scene.remember(9)
    await scene.check()


@pytest.mark.parametrize("ranks", [[0], [0, 1], [0, 2]])
@virtual
async def test_votes_that_do_not_come_are_named(ranks: list[int]) -> None:
    scene = await Scene.set()
    team = await scene.team()
    team.step(1)
    outcomes = await team.publish(ranks)
    missing = "ranks 1, 2 did" if len(ranks) == 1 else f"rank {3 - ranks[1]} did"
    told(outcomes[0], "aborted", f"{missing} not vote for version 1 within 30 s")
    assert errors_of(outcomes[1:]) == ["aborted" if len(ranks) > 1 else ""] * (len(ranks) - 1) or errors_of(
        outcomes[1:]
    ) == ["undecided"]
    await scene.recovers(team)


@virtual
async def test_a_late_vote_for_an_aborted_attempt_counts_for_nothing() -> None:
    scene = await Scene.set()
    team = await scene.team()
    team.step(1)
    told((await team.publish([0]))[0], "aborted")
    first = await fetch_sealed(scene.store, attempt_key(2, 0), Attempt)
    assert first is not None
    store = team.ranks[1].store
    seen: list[Vote] = []

    def copied(vote: Vote) -> Vote:
        seen.append(vote)
        return vote

    async with forged_votes(team, 1, copied):
        done = await team.agreed()
    late = changed(seen[0], attempt=first.sha256)
    assert await create_sealed(store, vote_key(2, 0, 1), late)
    scene.remember(done.version)
    await scene.published(team)
    await scene.check()


@virtual
async def test_a_vote_that_arrives_when_the_coordinator_has_given_up() -> None:
    scene = await Scene.set()
    team = await scene.team()
    team.step(1)
    team.ranks[2].store.outage = Outage("prepared/", "held", WRITES)
    outcomes = await team.publish()
    told(outcomes[0], "aborted", "rank 2 did not vote")
    told(outcomes[1], "aborted", "rank 2 did not vote")
    told(outcomes[2], "store_failed")
    assert team.in_doubt == [False, False, True]
    team.ranks[2].store.outage = None
    await team.ranks[2].store.deliver()
    assert await scene.keys(vote_key(2, 0, 2)) != []
    await scene.recovers(team)


@pytest.mark.spec("DS087")
@virtual
async def test_only_the_coordinator_ends_an_attempt() -> None:
    """An objection that comes when all have voted: the version stands, and members say so."""
    scene = await Scene.set()
    team = await scene.team()
    team.step(1)
    store = team.ranks[0].store
    real = store.put_if_absent

    async def put_if_absent(key: str, data: Any) -> bool:
        if key.startswith("log/"):
            await create_sealed(scene.store, objection_key(2, 0), Ending.seal_new(rank=2, reason="too late"))
            await asyncio.sleep(5)
        return await real(key, data)

    store.put_if_absent = put_if_absent  # type: ignore[method-assign]
    await scene.published(team)
    await scene.check()


@virtual
async def test_an_objection_ends_the_attempt_with_its_reason() -> None:
    scene = await Scene.set()
    team = await scene.team()
    team.step(1)
    team.ranks[1].store.outage = Outage("packs/", "refused", WRITES)
    outcomes = await team.publish()
    told(outcomes[1], "store_failed")
    told(outcomes[0], "aborted", "rank 1 cannot vote: no connection for packs/")
    told(outcomes[2], "aborted", "rank 1 cannot vote: no connection for packs/")
    assert team.in_doubt == [False, False, False]
    team.ranks[1].store.outage = None
    await scene.recovers(team)


@pytest.mark.parametrize("anchor", [False, True])
@virtual
async def test_an_upload_of_the_coordinator_fails(anchor: bool) -> None:
    scene = await Scene.set()
    team = await scene.team()
    team.step(1)
    team.ranks[0].store.outage = Outage("anchors/" if anchor else "packs/", "refused", WRITES)
    outcomes = await team.publish(anchor=anchor)
    told(outcomes[0], "store_failed")
    for outcome in outcomes[1:]:
        told(outcome, "aborted", "version 1 was not published: no connection for")
    team.ranks[0].store.outage = None
    await scene.recovers(team)


@virtual
async def test_a_slot_lost_to_a_label_is_no_abort() -> None:
    scene = await Scene.set()
    team = await scene.team()
    team.step(1)
    await append_foreign(scene.store)
    await scene.published(team)
    store = team.ranks[0].store
    real = store.put_if_absent

    async def put_if_absent(key: str, data: Any) -> bool:
        if key.startswith("log/"):
            store.put_if_absent = real  # type: ignore[method-assign]
            await append_foreign(scene.store)
        return await real(key, data)

    store.put_if_absent = put_if_absent  # type: ignore[method-assign]
    team.step(2)
    await scene.published(team)
    await scene.check()


@virtual
async def test_fenced_while_votes_are_awaited() -> None:
    scene = await Scene.set()
    team = await scene.team()
    team.step(1)
    task = asyncio.ensure_future(team.publish([0, 1]))
    await asyncio.sleep(3)
    newer = await open_writer(scene.store, scene.apart())
    late = await team.publish([2])
    assert errors_of([*await task, *late]) in (
        ["aborted", "fenced", "fenced"],
        ["fenced", "fenced", "fenced"],
    )
    assert await scene.versions() == [0]
    assert newer.epoch == 3
    assert errors_of(await team.publish()) == ["fenced"] * 3
    await scene.check()


@virtual
async def test_an_epoch_of_zombies_is_not_listened_to() -> None:
    scene = await Scene.set()
    old = await scene.team(2, run="old")
    old.step(1)
    new = await scene.team(2, run="new", seed=9)
    votes: list[Vote] = []

    def swallow(vote: Vote) -> None:
        votes.append(vote)

    async with forged_votes(new, 1, swallow):
        outcomes = await new.publish()
    told(outcomes[0], "aborted", "rank 1 did not vote")
    assert votes
    with pytest.raises(FencedError):
        await old.writer(1).publish()
    assert await scene.keys("prepared/00000000000000000003/00000000000000000000/00001") == []
    scene.model = new.model
    await scene.recovers(new)


@virtual
async def test_a_second_coordinator_of_the_same_epoch_is_noticed() -> None:
    scene = await Scene.set()
    team = await scene.team(2)
    foreign = Attempt.seal_new(
        epoch=2,
        epoch_nonce="0" * 32,
        attempt=0,
        nonce="1" * 32,
        version=1,
        base=None,
        parent=None,
        table=(await scene.manifests())[0].table,
        step=None,
    )
    await create_sealed(scene.store, attempt_key(2, 0), foreign)
    outcomes = await team.publish()
    told(outcomes[0], "aborted", "attempt 0 of epoch 2 was opened by another process")
    told(outcomes[1], "aborted", "joined another epoch")
    assert await scene.keys(record_key(4)) == []
