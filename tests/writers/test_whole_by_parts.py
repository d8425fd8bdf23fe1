"""A version stored whole of which no process has more than a part: bit for bit, or not at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deltastore.errors import ConflictError, CorruptError, NotFoundError
from deltastore.format.digest import digest_text
from deltastore.format.pack import pack_key
from deltastore.format.records import AnchorRecord
from deltastore.format.votes import Vote
from deltastore.stores.base import Store
from deltastore.writer.opening import open_writer
from tests.doubles.models import HOSTILE_BF16, Tensors, bf16, cut_table, every_dtype, small_model, tiny_model
from tests.doubles.stores import memory_store
from tests.layout.partitions import STYLES

from .streams import Scene
from .teams import Team, errors_of
from .virtual import virtual
from .voting import changed


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("limit", [3, 16, 1 << 20])
@virtual
async def test_every_type_and_split_to_the_bit(style: str, limit: int) -> None:
    model = {**small_model(2), **every_dtype()}
    scene = await Scene.set(model, limit=limit)
    team = await scene.team(3, style=style, seed=limit)
    team.step(1, 60)
    await scene.published(team, anchor=True)
    team.step(2, 10)
    await scene.published(team)
    assert [one.kind for one in await scene.manifests()] == ["anchor", "anchor", "delta"]
    await scene.check()


@pytest.mark.parametrize("filling", ["zeros", "negative zeros", "nan", "hostile", "one element"])
@virtual
async def test_hostile_patterns(filling: str) -> None:
    scene = await Scene.set()
    team = await scene.team(3, style="boxes")
    for name, tensor in team.model.items():
        flat = tensor.view(np.uint16).reshape(-1)
        fill: dict[str, Any] = {"zeros": 0, "negative zeros": 0x8000, "nan": 0x7F81, "one element": 0}
        flat[...] = (
            np.resize(np.array(HOSTILE_BF16, np.uint16), flat.size) if filling == "hostile" else fill[filling]
        )
        if filling == "one element" and name == "norm":
            flat[-1] = 0x8000
    await scene.published(team, anchor=True)
    team.step(1)
    await scene.published(team)
    team.step(2)
    await scene.published(team, anchor=True)
    await scene.check()


@virtual
async def test_it_is_the_same_anchor_as_of_one_writer() -> None:
    """Shards are the same bytes, whoever had which part of them."""
    model: Tensors = {"layers.0.w": bf16(np.arange(600).reshape(20, 30)), "norm": bf16(HOSTILE_BF16)}
    found = []
    for ranks in (1, 4):
        scene = await Scene.set({name: tensor.copy() for name, tensor in model.items()}, limit=64)
        if ranks == 1:
            alone = await open_writer(scene.store, scene.model)
            await alone.publish(anchor=True)
        else:
            await (await scene.team(ranks, style="flat")).agreed(anchor=True)
        record = (await scene.manifests())[-1]
        assert isinstance(record, AnchorRecord)
        prefix = record.anchor.prefix(record.version)
        keys = [key.removeprefix(prefix) for key in await scene.keys(prefix)]
        found.append({key: await scene.store.get(prefix + key, limit=1 << 20) for key in keys if "/c" in key})
        assert found[0]
        assert record.digest == (await scene.manifests())[0].digest
    assert found[0] == found[1]


async def forging(scene: Scene, forge: Any) -> Team:
    """A team whose rank 1 uploads or votes otherwise than it should."""
    team = await scene.team(2, style="axis", seed=3)
    store = team.ranks[1].store
    real, plain = store.put_if_absent, store.put

    async def put_if_absent(key: str, data: Any) -> bool:
        if key.startswith("prepared/") and key.endswith("00001.json"):
            vote = Vote.from_bytes(bytes(data), key)
            return await real(key, (await forge(vote, store.inner)).to_bytes())
        return await real(key, data)

    store.put_if_absent, store.put = put_if_absent, plain  # type: ignore[method-assign]
    return team


async def lies_about_the_digest(vote: Vote, store: Store) -> Vote:
    return changed(vote, difference=digest_text(int(vote.difference, 16) + 1))


async def leaves_a_pack_out(vote: Vote, store: Store) -> Vote:
    return changed(vote, packs=vote.packs[:-1])


async def names_a_pack_twice(vote: Vote, store: Store) -> Vote:
    return changed(vote, packs=(*vote.packs, vote.packs[-1]))


async def loses_a_pack(vote: Vote, store: Store) -> Vote:
    await store.delete(pack_key(1, vote.packs[0].sha256))
    return vote


async def damages_an_index(vote: Vote, store: Store) -> Vote:
    key = pack_key(1, vote.packs[0].sha256)
    data = bytearray(await store.get(key, limit=1 << 20))
    data[70] ^= 1
    await store.put(key, data)
    return vote


async def damages_a_patch(vote: Vote, store: Store) -> Vote:
    key = pack_key(1, vote.packs[0].sha256)
    data = bytearray(await store.get(key, limit=1 << 20))
    data[-1] ^= 1
    await store.put(key, data)
    return vote


LIES = {
    lies_about_the_digest: "aborted",
    leaves_a_pack_out: "aborted",
    names_a_pack_twice: "aborted",
    loses_a_pack: "lost_object",
    damages_an_index: "bad_hash",
    damages_a_patch: "bad_hash",
}


@pytest.mark.parametrize("lie", LIES)
@virtual
async def test_a_lie_about_the_parts_is_refused(lie: Any) -> None:
    scene = await Scene.set()
    team = await forging(scene, lie)
    team.step(1)
    outcomes = await team.publish(anchor=True)
    assert isinstance(outcomes[0], ConflictError | CorruptError | NotFoundError)
    assert errors_of(outcomes) == [LIES[lie], "aborted"]
    assert await scene.versions() == [0]
    again = await Team.opened(scene.store, scene.model, 2, run="r2")
    await scene.published(again, anchor=True)
    await scene.check()


@virtual
async def test_a_pack_named_twice_with_its_digest_is_refused_by_its_content() -> None:
    """The sum fits what is named; the second patch of an element is not what its row says."""
    scene = await Scene.set()

    async def forge(vote: Vote, store: Store) -> Vote:
        pack = vote.packs[-1]
        from deltastore.replay import fetch_pack_index

        table = cut_table(scene.model, 16)
        index = await fetch_pack_index(store, 1, pack, table)
        more = int(index.rows["difference"].sum(dtype=np.uint64))
        return changed(
            vote, packs=(*vote.packs, pack), difference=digest_text(int(vote.difference, 16) + more)
        )

    team = await forging(scene, forge)
    team.step(1)
    outcomes = await team.publish(anchor=True)
    assert errors_of(outcomes) == ["bad_digest", "aborted"]
    assert await scene.versions() == [0]
    await scene.check()


@virtual
async def test_ranks_that_hold_nothing_still_vote() -> None:
    scene = await Scene.set()
    team = Team.of(scene.store, scene.model, 4)
    team.split = [{}, {name: [((0,) * t.ndim, t.shape)] for name, t in scene.model.items()}, {}, {}]
    assert await team.open() == [None] * 4
    for number in range(3):
        team.step(number)
        await scene.published(team, anchor=number == 1)
    await scene.check()


@virtual
async def test_the_first_version_cannot_be_made_of_parts() -> None:
    model = tiny_model()
    store = memory_store()
    from deltastore.errors import NotFoundError as Missing
    from deltastore.log import Log
    from deltastore.writer.whole import _ensure_birth

    await _ensure_birth(Log(store))
    team = Team.of(store, model, 2)
    for outcome in await team.open():
        assert isinstance(outcome, Missing)
        assert outcome.code == "no_version"
