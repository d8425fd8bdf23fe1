"""A rank that does not know what became of its step asks again, while the others have gone on."""

from __future__ import annotations

import asyncio

import pytest

from deltastore.errors import ConflictError
from deltastore.writer.published import Published

from .ranks import Outage
from .streams import Scene
from .teams import told
from .virtual import virtual


@pytest.mark.spec("DS088")
@virtual
async def test_a_rank_alone_catches_up_with_the_same_step() -> None:
    """No barrier: rank 0 is at step 2 before rank 1 has heard of step 1."""
    scene = await Scene.set()
    team = await scene.team(2, timeout=5.0)
    team.step(1)
    scene.remember(1)
    store = team.ranks[1].store
    voted = asyncio.Event()
    real = store.put_if_absent

    async def vote_and_lose_the_log(key: str, data: bytes) -> bool:
        done = await real(key, data)
        if key.startswith("prepared/"):
            store.outage = Outage("log/", "refused")
            voted.set()
        return done

    store.put_if_absent = vote_and_lose_the_log  # type: ignore[assignment,method-assign]
    first = asyncio.ensure_future(team.writer(1).publish(step=1))
    assert (await team.writer(0).publish(step=1)).version == 1
    await voted.wait()
    met = (await asyncio.gather(first, return_exceptions=True))[0]
    told(met, "store_failed")
    store.outage = None
    store.put_if_absent = real  # type: ignore[method-assign]

    ahead = asyncio.ensure_future(team.writer(0).publish(step=2))
    again = await team.writer(1).publish(step=1)
    assert (again.version, again.kind) == (1, "delta")
    scene.remember(2)
    both = await asyncio.gather(ahead, team.writer(1).publish(step=2))
    assert [one.version for one in both] == [2, 2]
    await scene.check()


@virtual
async def test_an_outage_shorter_than_the_timeout_is_waited_out() -> None:
    scene = await Scene.set()
    team = await scene.team(3, timeout=30.0)
    team.step(1)
    for rank in (0, 1, 2):
        team.ranks[rank].store.outage = Outage("prepared/", "refused", frozenset({"get"}))

    async def mend() -> None:
        await asyncio.sleep(10)
        for rank in (0, 1, 2):
            team.ranks[rank].store.outage = None

    outcomes, _ = await asyncio.gather(team.publish(step=1), mend())
    assert all(isinstance(one, Published) for one in outcomes), outcomes
    scene.remember(1)
    await scene.check()


@virtual
async def test_a_dead_store_does_not_hold_up_who_gives_up() -> None:
    """Nothing rests on the word that an attempt is over: it is given a few seconds."""
    scene = await Scene.set()
    team = await scene.team(2, timeout=1.0)
    store = team.ranks[0].store
    asked = asyncio.Event()

    async def never(key: str, data: bytes) -> bool:
        asked.set()
        await asyncio.Event().wait()
        return False

    team.step(1)
    alone = asyncio.ensure_future(team.writer(0).publish(step=1))
    await asyncio.sleep(0.5)
    store.put_if_absent = never  # type: ignore[assignment,method-assign]
    clock = asyncio.get_running_loop().time
    begun = clock()
    with pytest.raises(ConflictError, match="rank 1 did not vote"):
        await alone
    assert asked.is_set()
    assert clock() - begun < 10  # of the virtual clock
