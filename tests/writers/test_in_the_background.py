"""Several writers that go on with the next step while a version is on its way."""

from __future__ import annotations

import asyncio

import pytest

from deltastore.errors import DeltastoreError

from .ranks import Outage
from .streams import Scene
from .teams import load
from .virtual import virtual

WRITES = frozenset({"put", "put_if_absent"})


@pytest.mark.parametrize("anchor", [False, True])
@pytest.mark.parametrize("rank", [0, 1, 2])
@virtual
async def test_publish_async_on_all_ranks(rank: int, anchor: bool) -> None:
    """Weights change once every rank has found its changes; whoever fails in the background says so later."""
    scene = await Scene.set()
    team = await scene.team()
    for number in range(1, 4):
        team.step(number)
        scene.remember(number)
        options = {0: {"anchor": anchor}}
        handles = await team.all(lambda rank, o=options: team.writer(rank).publish_async(**o.get(rank, {})))  # type: ignore[misc]
        team.step(number + 50, 40)
        done = [await handle for handle in handles]
        assert {one.version for one in done} == {number}
        load(team.model, scene.history[number])
    await scene.check()
    team.ranks[rank].store.outage = Outage("packs/", "refused", WRITES)
    team.step(60)
    handles = await team.all(lambda rank: team.writer(rank).publish_async())
    ended = await asyncio.gather(
        *(team.writer(number).close() for number in range(3)), return_exceptions=True
    )
    for at_once, in_the_end in zip(handles, ended, strict=True):
        assert isinstance(at_once, DeltastoreError) != isinstance(in_the_end, DeltastoreError)
    assert await scene.versions() == [0, 1, 2, 3]
    team.ranks[rank].store.outage = None
    await scene.published(team)
    await scene.check()
