"""However many objects are looked at side by side, the report is the same; only what is wanted is read."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from deltastore.errors import InputError, NotFoundError
from deltastore.format.records import record_key
from deltastore.stores.base import Store
from deltastore.validate import Level, validate
from tests.doubles.models import cut_table, tiny_model
from tests.doubles.stores import WatchedStore, contents, copied, flipped, memory_store
from tests.doubles.training import Trainer


class Unsteady(WatchedStore):
    """Answers take turns in another order than they were asked for."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.most = 0
        self._now = 0

    async def get(self, key: str, *, limit: int) -> bytes:
        self._now += key.startswith("packs/")
        self.most = max(self.most, self._now)
        for _ in range(1 + sum(key.encode()) % 7):
            await asyncio.sleep(0)
        self._now -= key.startswith("packs/")
        return await super().get(key, limit=limit)


async def tree() -> Trainer:
    """Two anchors and a rollback, many packs."""
    trainer = await Trainer.create(memory_store(), tiny_model(), table=cut_table(tiny_model(), 8))
    await trainer.steps(3, 30)
    await trainer.step(30, anchor=True)
    await trainer.steps(2, 30)
    trainer.load(1)
    await trainer.reopen()
    await trainer.steps(2, 30)
    return trainer


@pytest.mark.parametrize("level", [Level.CONTENT, Level.DEEP])
async def test_reports_are_equal(level: Level) -> None:
    objects = await contents((await tree()).store)
    broken = dict(objects)
    packs = sorted(key for key in objects if key.startswith("packs/"))
    shards = sorted(key for key in objects if "/c/" in key)
    for key in (*packs[::3], shards[0], shards[-1]):
        broken[key] = flipped(objects[key], len(objects[key]) // 2)
    del broken[packs[1]]
    for held in (objects, broken):
        store = await copied(held)
        first = await validate(store, level=level, jobs=1)
        assert first.ok == (held is objects)
        for jobs in (2, 5, 40):
            assert await validate(Unsteady(store), level=level, jobs=jobs) == first
        assert await validate(store, level=level, jobs=3, memory=1) == first
        found = [problem.version for problem in first.problems if problem.code == "bad_hash"]
        assert found == sorted(found, key=lambda version: version or 0)


async def test_no_more_than_so_many_side_by_side() -> None:
    store = (await tree()).store
    for jobs in (1, 3):
        spy = Unsteady(store)
        await validate(spy, level=Level.CONTENT, jobs=jobs)
        assert spy.most == jobs
    with pytest.raises(InputError):
        await validate(store, jobs=0)


async def test_arguments_that_contradict_each_other(tmp_path: Path) -> None:
    store = (await tree()).store
    with pytest.raises(InputError, match="give one of them"):
        await validate(store, version=2, newest=True)
    with pytest.raises(InputError, match="leave resume out"):
        await validate(store, level=Level.STRUCTURE, resume=tmp_path / "notes")
    assert list(tmp_path.iterdir()) == []


class TestOneVersion:
    """With a version, no more than what reading it takes."""

    async def read(self, **options: int | bool) -> tuple[set[str], set[str], int]:
        """Versions whose packs were read, and whose anchors; and how many records."""
        spy = WatchedStore((await tree()).store)
        report = await validate(spy, level=Level.CONTENT, **options)  # type: ignore[arg-type]
        assert report.ok
        keys = {key.split("/")[0]: set[str]() for key in spy.keys("get", "get_range")}
        for key in spy.keys("get", "get_range"):
            keys[key.split("/")[0]].add(
                str(int(key.split("/")[1].removesuffix(".json"), 10)) if key[0] in "pal" else key
            )
        return keys.get("packs", set()), keys.get("anchors", set()), report.versions

    async def test_a_path_in_the_middle(self) -> None:
        assert await self.read(version=2) == ({"1", "2"}, {"0"}, 3)

    async def test_the_newest_after_a_rollback(self) -> None:
        assert await self.read(newest=True) == ({"1", "7", "8"}, {"0"}, 4)

    async def test_damage_elsewhere_is_not_seen(self) -> None:
        objects = await contents((await tree()).store)
        for key in objects:
            if key.startswith("packs/00000000000000000003/"):
                objects[key] = flipped(objects[key], 80)
        store = await copied(objects)
        assert (await validate(store, version=2)).ok
        assert not (await validate(store, version=3)).ok
        assert (await validate(store, newest=True)).sound == 8
        assert (await validate(store)).sound == 8

    async def test_no_such_version(self) -> None:
        store = (await tree()).store
        for version in (9, 100):
            with pytest.raises(NotFoundError) as caught:
                await validate(store, version=version)
            assert caught.value.code == "no_version"
        bare = await copied(
            {key: data for key, data in (await contents(store)).items() if key == record_key(0)}
        )
        with pytest.raises(NotFoundError):
            await validate(bare, newest=True)
        assert (await validate(bare)).versions == 0

    async def test_a_log_that_is_broken_before_it(self) -> None:
        objects = await contents((await tree()).store)
        del objects[record_key(5)]
        report = await validate(await copied(objects), version=8)
        assert [(problem.code, problem.where) for problem in report.problems] == [
            ("lost_object", record_key(5))
        ]
        assert report.versions == 0
