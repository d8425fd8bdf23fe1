"""Calls and answers that are not those of this start: old ones, lying ones, those of a twin."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deltastore.errors import ConflictError, DeltastoreError
from deltastore.format.canonical import canonical_bytes, seal
from deltastore.format.votes import Call, Join, call_prefix, claim_key
from deltastore.writer.exchange import create_sealed

from .ranks import Casualty, Outage
from .streams import Scene
from .teams import Team, errors_of, told
from .virtual import virtual


@virtual
async def test_a_rank_that_two_processes_have() -> None:
    scene = await Scene.set()
    team = Team.of(scene.store, scene.model, timeout=5.0)
    twin = Team.of(scene.store, scene.apart(), timeout=5.0)
    first = asyncio.gather(*(team.open_rank(rank, timeout=5.0) for rank in (0, 1)), return_exceptions=True)
    second = asyncio.gather(twin.open_rank(1, timeout=5.0), return_exceptions=True)
    outcomes = [*await first, *await second]
    told(outcomes[0], "aborted", "rank 2 of 3 did not join")
    assert sorted(errors_of(outcomes)) == ["aborted"] * 3
    assert any("another process joined run 'r1' as rank 1" in str(one) for one in outcomes)


@pytest.mark.parametrize("end", ["whole", "refused", "half", "other size", "refused other size"])
@virtual
async def test_a_run_whose_name_was_used_before(end: str) -> None:
    scene = await Scene.set()
    size = 2 if "other" in end else 3
    before = Team.of(scene.store, scene.model, size, timeout=4.0)
    if end == "whole":
        assert await before.open() == [None] * 3
    elif "refused" in end:
        await asyncio.gather(
            *(before.open_rank(rank, timeout=2.0) for rank in range(size - 1)), return_exceptions=True
        )
    else:
        before.ranks[0].store.strike(Casualty(12, "after", "dead"))
        await asyncio.gather(before.open_rank(0, timeout=2.0), return_exceptions=True)
        before.ranks[0].store.dead = True
    assert await scene.keys(call_prefix("r1", 0)) != []
    after = Team.of(scene.store, scene.model, 3, seed=5)
    assert await after.open() == [None] * 3
    after.step(1)
    await scene.published(after)
    await scene.check()


@virtual
async def test_a_restarted_rank_does_not_answer_an_old_call() -> None:
    """Else an old coordinator that still waits would come into an epoch, and fence the new one."""
    scene = await Scene.set()
    old = Team.of(scene.store, scene.apart(), 2)
    waiting = asyncio.ensure_future(old.open_rank(0, timeout=60.0))
    await asyncio.sleep(1)
    new = Team.of(scene.store, scene.model, 2)
    coordinator = asyncio.ensure_future(new.open_rank(0, timeout=30.0))
    await asyncio.sleep(1)
    await new.open_rank(1, timeout=30.0)
    await coordinator
    with pytest.raises(ConflictError, match="rank 1 of 2 did not join"):
        await waiting
    new.step(1)
    await scene.published(new)
    await scene.check()


@virtual
async def test_two_coordinators_of_one_run() -> None:
    scene = await Scene.set()
    one, other = Team.of(scene.store, scene.model), Team.of(scene.store, scene.apart())
    opening = [
        *(one.open_rank(rank, timeout=5.0) for rank in range(3)),
        other.open_rank(0, timeout=5.0),
    ]
    outcomes = await asyncio.gather(*opening, return_exceptions=True)
    assert errors_of(outcomes[1:3]) == ["", ""]
    leaders = [team for team, outcome in ((one, outcomes[0]), (other, outcomes[3])) if outcome is None]
    assert leaders
    published = []
    for team in leaders:
        team.ranks[1:] = one.ranks[1:]
        said_so = await asyncio.gather(
            *(team.writer(rank).publish() for rank in range(3)), return_exceptions=True
        )
        published += [team] if errors_of(said_so) == ["", "", ""] else []
    assert len(await scene.versions()) == 1 + len(published)
    assert len(published) <= 1
    scene.history |= dict.fromkeys(await scene.versions(), scene.history[0])
    await scene.check()


@pytest.mark.parametrize("lie", ["hash", "table", "absent", "other bytes", "outside", "no box"])
@virtual
async def test_a_claim_that_lies(lie: str) -> None:
    scene = await Scene.set()
    team = Team.of(scene.store, scene.model, 2, style="rows")
    task = asyncio.ensure_future(team.open_rank(0, timeout=5.0))
    await asyncio.sleep(0.5)
    call = Call.from_bytes(await scene.store.get(call_prefix("r1", 0) + "call.json", limit=9999), "call")
    boxes = [{"array": 0, "start": [0, 0, 0], "size": [1, 4, 5]}]
    if lie in ("outside", "no box"):
        boxes = [{"array": 7, "start": [0, 0, 0], "size": [1, 4, 5]}] if lie == "outside" else []
    fields = {
        "format": 1,
        "kind": "claim",
        "table": "0" * 64 if lie == "table" else call.table,
        "boxes": boxes,
    }
    claim = seal(fields)
    key = claim_key(claim["sha256"])
    if lie == "hash":
        await scene.store.put(key, canonical_bytes({**claim, "boxes": []}))
    elif lie == "other bytes":
        await scene.store.put(key, canonical_bytes(seal({**fields, "boxes": []})))
    elif lie != "absent":
        await scene.store.put(key, canonical_bytes(claim))
    join = Join.seal_new(
        call=call.sha256, rank=1, nonce="a" * 32, label="", claim=claim["sha256"], digest="0" * 16
    )
    await create_sealed(scene.store, call_prefix("r1", 0) + "00001.json", join)
    with pytest.raises(DeltastoreError) as refused:
        await task
    expected = {"hash": "bad_hash", "table": "aborted", "absent": "lost_object", "other bytes": "lost_object"}
    assert refused.value.code == expected.get(lie, "bad_argument")
    assert await scene.keys(call_prefix("r1", 0) + "refused") != []
    assert len(await scene.epochs()) == 1


@pytest.mark.parametrize("what", ["call", "rank"])
@virtual
async def test_an_answer_to_something_else(what: str) -> None:
    scene = await Scene.set()
    team = Team.of(scene.store, scene.model, 2)
    task = asyncio.ensure_future(team.open_rank(0, timeout=5.0))
    await asyncio.sleep(0.5)
    call = Call.from_bytes(await scene.store.get(call_prefix("r1", 0) + "call.json", limit=9999), "call")
    fields: dict[str, Any] = {"call": call.sha256, "rank": 1, "nonce": "a" * 32, "label": ""}
    fields |= {"claim": "0" * 64, "digest": "0" * 16, what: "0" * 64 if what == "call" else 0}
    await create_sealed(scene.store, call_prefix("r1", 0) + "00001.json", Join.seal_new(**fields))
    with pytest.raises(ConflictError, match="rank 1 put under"):
        await task
    assert len(await scene.epochs()) == 1


@pytest.mark.parametrize("prefix", ["joining/", "claims/", "log/"])
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("how", ["refused", "lost"])
@virtual
async def test_no_connection_while_gathering(prefix: str, rank: int, how: Any) -> None:
    scene = await Scene.set()
    team = Team.of(scene.store, scene.model, 3, timeout=5.0)
    team.ranks[rank].store.outage = Outage(prefix, how)
    outcomes = await team.open()
    assert errors_of(outcomes)[rank] == "store_failed"
    assert set(errors_of(outcomes)) <= {"store_failed", "aborted", ""}
    team.ranks[rank].store.outage = None
    assert await team.open() == [None, None, None]
    await scene.published(team)
    await scene.check()
