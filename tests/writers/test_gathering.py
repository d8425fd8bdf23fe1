"""How writers find each other: who is late, missing, twice or wrong is named, and nobody waits for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from deltastore.errors import ConflictError, FencedError, InputError
from deltastore.layout.parts import Part
from deltastore.writer.opening import open_writer
from tests.doubles.models import tiny_model
from tests.layout.partitions import STYLES

from .ranks import Casualty, Outage
from .streams import Scene
from .teams import Team, errors_of, told
from .virtual import virtual


@pytest.mark.parametrize("ranks", [1, 2, 5])
@pytest.mark.parametrize("style", STYLES)
@virtual
async def test_any_split_of_the_model_becomes_an_epoch(style: str, ranks: int) -> None:
    scene = await Scene.set()
    team = await scene.team(ranks, style=style, seed=ranks)
    assert {rank.writer.version for rank in team.ranks if rank.writer} == {0}
    for seed in range(3):
        team.step(seed)
        await scene.published(team, anchor=seed == 1)
    assert [(record.resumes, record.epoch) for record in await scene.epochs()][1:] == [(0, 2)]
    await scene.check()


@virtual
async def test_more_ranks_than_are_asked_for_one_by_one() -> None:
    scene = await Scene.set()
    team = await scene.team(40, style="flat")
    team.step(1, 50)
    await scene.published(team)
    await scene.check()


@pytest.mark.parametrize("late", [0, 1, 2])
@virtual
async def test_a_late_rank_is_waited_for(late: int) -> None:
    scene = await Scene.set()
    team = Team.of(scene.store, scene.model)
    real = team.ranks[late].store.get

    async def slow(key: str, *, limit: int) -> bytes:
        team.ranks[late].store.get = real  # type: ignore[method-assign]
        await asyncio.sleep(20)
        return await real(key, limit=limit)

    team.ranks[late].store.get = slow  # type: ignore[method-assign]
    assert await team.open() == [None, None, None]
    await scene.published(team)
    await scene.check()


async def some_open(scene: Scene, ranks: list[int], of: int = 4, **options: Any) -> list[Any]:
    """Only these ranks of a team start."""
    team = Team.of(scene.store, scene.model, of, **options)
    return await asyncio.gather(*(team.open_rank(rank) for rank in ranks), return_exceptions=True)


@virtual
async def test_missing_ranks_are_named() -> None:
    scene = await Scene.set()
    missing_two = await some_open(scene, [0, 2])
    told(missing_two[0], "aborted", "ranks 1, 3 of 4 did not join run 'r1' within 10 s")
    told(missing_two[1], "aborted", "did not come together", "ranks 1, 3 of 4")
    missing_one = await some_open(scene, [0, 1, 3])
    told(missing_one[0], "aborted", "rank 2 of 4 did not join")
    assert len(await scene.epochs()) == 1
    await scene.check()


@virtual
async def test_nobody_calls() -> None:
    scene = await Scene.set()
    for outcome in await some_open(scene, [1, 2, 3]):
        told(outcome, "aborted", "rank 0 did not call the writers of run 'r1' within 20 s")


@pytest.mark.parametrize("how", ["dead", "cancelled"])
@pytest.mark.parametrize("number", [*range(1, 30)])
@virtual
async def test_the_coordinator_goes_at_any_call(number: int, how: Any) -> None:
    scene = await Scene.set()
    team = Team.of(scene.store, scene.model, timeout=5.0)
    for when in ("before", "after"):
        team.run = f"r-{when}"
        team.ranks[0].store.dead = False
        team.ranks[0].store.strike(Casualty(number, when, how))
        outcomes = await team.open()
        if team.ranks[0].store.casualty is None:
            assert isinstance(outcomes[0], BaseException)
            assert all(one is None or isinstance(one, ConflictError) for one in outcomes[1:]), outcomes
            text = " ".join(str(one) for one in outcomes[1:] if one)
            assert "Casualty" not in text
            if any(one is not None for one in outcomes[1:]):
                assert "rank 0" in text or "did not begin" in text or "did not come together" in text
        team.ranks[0].store.strike(None)
    again = await scene.team(3, run="again")
    await scene.published(again)
    await scene.check()


@virtual
async def test_a_twin_does_not_keep_the_others_from_publishing() -> None:
    scene = await Scene.set()
    team = Team.of(scene.store, scene.model, timeout=5.0)
    twin = Team.of(scene.store, scene.apart(), timeout=5.0)
    outcomes = await asyncio.gather(team.open(), twin.open_rank(1, timeout=5.0), return_exceptions=True)
    both = [outcomes[0][1], outcomes[1]]  # type: ignore[index]
    assert sorted(errors_of(both)) == ["", "aborted"]
    winner = team if both[0] is None else twin
    team.ranks[1].writer = winner.ranks[1].writer
    await team.agreed()
    await scene.store.close()


@virtual
async def test_another_number_of_writers() -> None:
    scene = await Scene.set()
    team = Team.of(scene.store, scene.model, 3, timeout=5.0)
    outcomes = await asyncio.gather(
        team.open_rank(0, timeout=5.0),
        team.open_rank(1),
        team.open_rank(2, writers=4),
        return_exceptions=True,
    )
    told(outcomes[2], "aborted", "run 'r1' is of 3 writers, and this one was told 4")
    told(outcomes[0], "aborted", "rank 2 of 3 did not join")
    told(outcomes[1], "aborted", "rank 2 of 3 did not join")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rank": 3}, "rank 3 is not one of 3 writers"),
        ({"rank": -1}, "rank -1 is not one of 3 writers"),
        ({"rank": 0, "writers": 0}, "rank 0 is not one of 0 writers"),
        ({"rank": 0, "run": ""}, "several writers need a run"),
        ({"rank": 1, "run": ""}, "several writers need a run"),
        ({"rank": 1, "resumes": 0}, "resumes is for rank 0 to say"),
    ],
)
@virtual
async def test_arguments_that_make_no_sense(options: dict[str, Any], words: str) -> None:
    scene = await Scene.set()
    team = Team.of(scene.store, scene.model)
    with pytest.raises(InputError, match=words) as refusal:
        await team.open_rank(0, **options)
    assert refusal.value.code == "bad_argument"
    assert await scene.keys("joining/") == []


@pytest.mark.parametrize("run", ["a/b", "..", "a b", "-x", "x" * 300])
@pytest.mark.parametrize("rank", [0, 1])
@virtual
async def test_a_run_that_is_no_part_of_a_key(run: str, rank: int) -> None:
    scene = await Scene.set()
    team = Team.of(scene.store, scene.model, run=run)
    with pytest.raises(InputError):
        await team.open_rank(rank)
    assert await scene.keys("joining/") == []


@pytest.mark.spec("DS085")
@pytest.mark.parametrize("what", ["lost", "twice", "overlap", "own overlap"])
@virtual
async def test_ranks_that_are_not_each_element_once(what: str) -> None:
    scene = await Scene.set()
    team = Team.of(scene.store, scene.model, style="rows")
    team.split = [
        {"layers.0.weight": [((0, 0), (4, 5))], "layers.1.weight": [((0, 0), (2, 5))]},
        {"layers.1.weight": [((2, 0), (2, 5))], "norm": [((0,), (12,))]},
        {"layers.2.weight": [((0, 0), (4, 5))]},
    ]
    words: tuple[str, ...] = ()
    if what == "lost":
        del team.split[1]["norm"]
        words = ("elements [0:12] of tensor 'norm' are held by nobody",)
    elif what == "twice":
        team.split[2]["norm"] = [((0,), (12,))]
        words = ("elements [0:12] of tensor 'norm'", "held by both rank 1 and rank 2")
    elif what == "overlap":
        team.split[1]["layers.1.weight"] = [((1, 0), (3, 5))]
        words = ("elements [1:2, 0:5] of tensor 'layers.1.weight'", "held by both rank 0 and rank 1")
    else:
        team.split[2]["layers.2.weight"] = [((0, 0), (3, 5)), ((2, 0), (2, 5))]
        words = ("elements [2:3, 0:5] of tensor 'layers.2.weight'", "held by both rank 2 and rank 2")
    outcomes = await team.open()
    told(outcomes[0], "bad_argument", *words)
    for outcome in outcomes[1:]:
        told(outcome, "aborted", *words)
    assert len(await scene.epochs()) == 1
    await scene.check()


@virtual
async def test_one_writer_of_parts_holds_all_of_them_too() -> None:
    scene = await Scene.set()
    norm = {"norm": [Part(scene.model["norm"][:5], (12,), (0,))]}
    with pytest.raises(InputError, match="held by nobody"):
        await open_writer(scene.store, {**scene.model, **norm})
    whole = await open_writer(
        scene.store, {**scene.model, "norm": [*norm["norm"], Part(scene.model["norm"][5:], (12,), (5,))]}
    )
    assert whole.version == 0


@virtual
async def test_weights_of_no_version_become_an_anchor() -> None:
    scene = await Scene.set()
    scene.model["norm"].view(np.uint16)[3] ^= 1
    team = await scene.team()
    assert [rank.writer.version for rank in team.ranks if rank.writer] == [None] * 3
    assert (await team.agreed()).kind == "anchor"
    scene.remember(1)
    team.step(1)
    assert (await team.agreed()).kind == "delta"
    scene.remember(2)
    await scene.check()


@virtual
async def test_an_older_version_is_found_or_insisted_on() -> None:
    scene = await Scene.set()
    team = await scene.team()
    for seed in range(3):
        team.step(seed)
        await scene.published(team)
    model = scene.apart()
    for name, old in scene.history[1].items():
        model[name].view(old.dtype)[...] = old
    wrong = Team.of(scene.store, scene.model, run="wrong")
    outcomes = await asyncio.gather(
        wrong.open_rank(0, resumes=1), wrong.open_rank(1), wrong.open_rank(2), return_exceptions=True
    )
    told(outcomes[0], "bad_argument", "are not the weights of version 1")
    for outcome in outcomes[1:]:
        told(outcome, "aborted", "are not the weights of version 1")
    older = Team.of(scene.store, model, run="older")
    await asyncio.gather(older.open_rank(0, resumes=1), older.open_rank(1), older.open_rank(2))
    older.step(7)
    scene.model = model
    done = await older.agreed()
    assert (done.version, done.kind) == (4, "delta")
    scene.remember(4)
    assert (await scene.manifests())[-1].base == 1  # type: ignore[union-attr]
    await scene.check()


@virtual
async def test_lost_replies_while_gathering_do_no_harm() -> None:
    """Every write is applied, and its reply gets lost: reading it back settles that."""
    scene = await Scene.set()
    team = Team.of(scene.store, scene.model)
    for rank in team.ranks:
        rank.store.outage = Outage("joining/", "lost", frozenset({"put_if_absent"}))
    assert await team.open() == [None, None, None]
    await scene.published(team)
    await scene.check()


@virtual
async def test_a_newer_epoch_while_writers_gather_is_fenced_in_turn() -> None:
    scene = await Scene.set()
    alone = await open_writer(scene.store, scene.apart())
    team = await scene.team()
    with pytest.raises(FencedError, match="epoch 3"):
        await alone.publish()
    await scene.published(team)
    await scene.check()


@virtual
async def test_a_label_stands_in_the_epoch() -> None:
    scene = await Scene.set(tiny_model(3))
    await scene.team(label="trainer-7")
    assert [record.writer for record in await scene.epochs()][-1] == "trainer-7"
