"""The benchmark of stores: what it counts with, that every figure comes out, and that nothing stays."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deltastore.bench import clients
from deltastore.bench.figure import Figure
from deltastore.bench.noise import Noise
from deltastore.bench.place import below, own_place
from deltastore.bench.publish_memory import measure_memory
from deltastore.bench.puts import at_once, put_all
from deltastore.bench.recording import RecordingStore, Request, longest_chain
from deltastore.bench.resident import measured_rise
from deltastore.bench.store import StorePlan, measure_store
from deltastore.errors import StoreError
from deltastore.stores.local import LocalStore
from deltastore.stores.memory import MEMORY_STORES
from deltastore.stores.open import open_store
from tests.cli.running import run_here
from tests.doubles.stores import WatchedStore, contents, fail_once, memory_store
from tests.servers.server import Server

PLAN = StorePlan(nbytes=3_000_000, pack_bytes=500_000, uploads=3, repeats=1)


@pytest.fixture(autouse=True)
def _few_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_COUNT", 3)
    monkeypatch.setattr(clients, "_POLLS", 3)


async def measured(url: str) -> dict[tuple[str, str], Figure]:
    """All figures, by name and unit."""
    return {(one.name, one.unit): one async for one in measure_store(url, PLAN)}


def check_streaming(found: dict[tuple[str, str], Figure]) -> None:
    assert found["commit, without its packs", "requests"].reached
    assert found["poll, nothing new", "requests"].value == 1
    assert found["publish", "MB/s"].ratio is not None
    assert found["its uploads", "MB/s"].ratio is not None
    assert all(one.value >= 0 for one in found.values())


class TestFigures:
    async def test_in_memory(self) -> None:
        found = await measured("memory://measured")
        check_streaming(found)
        assert not any("memory" in name for name, _ in found)
        assert not any(name.startswith("measured/") for name in MEMORY_STORES)

    async def test_in_a_folder(self, tmp_path: Path) -> None:
        found = await measured(f"{tmp_path}/measured")
        check_streaming(found)
        for size in ("small", "large"):
            rise = found[f"memory of a {size} publish", "MB"]
            assert rise.reached
            assert rise.beside == "66 MB"
        assert list(tmp_path.rglob("*")) == [tmp_path / "measured"]

    async def test_on_s3_beside_obstore(self, weed: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        async def unmeasured(*_: object) -> list[Figure]:
            return []  # what a publish takes is the same everywhere

        monkeypatch.setattr("deltastore.bench.store.measure_memory", unmeasured)
        url = weed.url(weed.bucket("bench-store"), "measured")
        found = await measured(url)
        check_streaming(found)
        assert found["its uploads", "MB/s"].target == 0.8
        beside = {name: one for (name, _), one in found.items() if one.beside == "the speed of obstore"}
        assert [name.partition(" ")[0] for name in beside] == ["put", "get", "put", "get", "3", "3"]
        assert all(one.ratio is not None and one.ratio > 0 for one in beside.values())
        async with open_store(url) as store:
            assert [info async for info in store.list("")] == []

    async def test_without_obstore_the_clients_are_not_compared(
        self, weed: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        url = weed.url(weed.bucket("bench-store"), "measured")
        assert await clients.compare_clients(url, [10], 1, 1) == []

    @pytest.mark.parametrize(
        ("ratio", "target", "at_most", "reached"),
        [(0.9, 0.8, False, True), (0.7, 0.8, False, False), (0.9, 1.0, True, True), (None, 1.0, True, False)],
    )
    def test_a_target_is_of_the_ratio_or_else_of_the_value(
        self, ratio: float | None, target: float, at_most: bool, reached: bool
    ) -> None:
        assert Figure("x", 2.0, "MB", ratio, "y", target, at_most).reached is reached
        assert Figure("x", 2.0, "MB", ratio, "y").reached is None


class TestChains:
    @pytest.mark.parametrize(
        ("spans", "length"),
        [
            ([], 0),
            ([(0, 1)], 1),
            ([(0, 1), (1, 2), (2, 3)], 3),
            ([(0, 3), (1, 2), (0, 2)], 1),
            ([(0, 10), (1, 2), (3, 4), (5, 6)], 3),
            ([(5, 6), (3, 4), (0, 10), (1, 2)], 3),
        ],
    )
    def test_the_most_requests_that_waited_for_each_other(
        self, spans: list[tuple[float, float]], length: int
    ) -> None:
        assert longest_chain([Request("get", "a", 0, began, ended) for began, ended in spans]) == length

    async def test_every_operation_is_recorded_and_done(self) -> None:
        inner = memory_store()
        store = RecordingStore(inner)
        await store.put("a", b"12345")
        assert await store.put_if_absent("b", b"123")
        assert await store.get("a", limit=5) == b"12345"
        assert await store.get_range("a", 1, 2) == b"23"
        assert (await store.get_changed("a", tag=None, limit=5)) is not None
        assert (await store.stat("a")) is not None
        assert [info.key async for info in store.list("")] == ["a", "b"]
        await store.delete("a")
        assert [(one.operation, one.nbytes) for one in store.requests] == [
            ("put", 5),
            ("put_if_absent", 3),
            ("get", 5),
            ("get_range", 2),
            ("get_changed", 0),
            ("stat", 0),
            ("list", 0),
            ("delete", 0),
        ]
        assert longest_chain(store.requests) == 8
        assert (store.url, store.probed_at_start) == (inner.url, inner.probed_at_start)

    async def test_one_that_failed_is_recorded_too(self) -> None:
        heard: list[Request] = []
        store = RecordingStore(WatchedStore(memory_store(), before=fail_once("put")), heard.append)
        with pytest.raises(StoreError):
            await store.put("a", b"")
        assert [one.operation for one in heard] == ["put"]
        assert store.requests == []


class TestPlaces:
    @pytest.mark.parametrize(
        ("url", "wanted"),
        [
            ("memory://a", "memory://a/b"),
            ("file:///x/", "file:///x/b"),
            ("./x", "./x/b"),
            ("s3://bucket?endpoint=http://h:1", "s3://bucket/b?endpoint=http://h:1"),
        ],
    )
    def test_below(self, url: str, wanted: str) -> None:
        assert below(url, "b") == wanted

    @pytest.mark.parametrize("fails", [False, True])
    async def test_only_what_is_in_the_place_is_removed(self, tmp_path: Path, fails: bool) -> None:
        mine = LocalStore(tmp_path / "store")
        await mine.put("log/0", b"mine")
        try:
            async with own_place(mine.url, "bench") as place:
                await open_store(place).put("a/b", b"theirs")
                if fails:
                    raise StoreError("store_failed", "on purpose")
        except StoreError:
            assert fails
        assert await contents(mine) == {"log/0": b"mine"}
        assert [path.name for path in mine.root.iterdir()] == ["log"]


class TestPlainPuts:
    async def test_they_have_the_sizes_asked_for_and_go(self) -> None:
        store = RecordingStore(memory_store())
        await put_all(store, [5, 70, 0], 2)
        assert [one.nbytes for one in store.requests if one.operation == "put"] == [5, 70, 0]
        assert await contents(store) == {}
        await put_all(store, [5], 1, keep=True)
        assert {key: len(data) for key, data in (await contents(store)).items()} == {"plain/0": 5}

    async def test_at_most_so_many_at_once(self) -> None:
        running, most = 0, 0

        async def work(_: int) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await memory_store().stat("a")
            running -= 1

        await at_once(work, range(9), 2)
        assert 1 <= most <= 2
        assert running == 0


class TestMemory:
    def test_what_a_block_takes_at_its_highest_point(self) -> None:
        rises = []
        for size in (96 << 20, 40 << 20):
            # Else what earlier tests have freed, and the C library kept, would do.
            ctypes.CDLL(None).malloc_trim(0)
            with measured_rise() as rise:
                np.ones(size, np.uint8)
            rises.append(rise.nbytes)
        assert 90 << 20 < rises[0] < 110 << 20
        assert 38 << 20 < rises[1] < 50 << 20

    async def test_a_publish_that_fails_says_why(self) -> None:
        with pytest.raises(StoreError, match=r"process of its own failed: .*names no store"):
            await measure_memory("nowhere", 10, 10, 1)


class TestNoise:
    def test_its_size_and_its_changes(self) -> None:
        model = Noise(20_000_000)
        nbytes = sum(bits.nbytes for bits in model.tensors.values())
        assert 0.99 < nbytes / 20_000_000 <= 1
        assert max(bits.nbytes for bits in model.tensors.values()) == 8 << 20
        before = model.copy()
        model.change_little()
        assert changed(before, model) == len(before)
        model.change_all()
        assert changed(before, model) > 0.99 * nbytes / 2


def changed(before: dict[str, Any], model: Noise) -> int:
    return sum(int((bits != model.tensors[name]).sum()) for name, bits in before.items())


class TestCommand:
    @pytest.fixture(autouse=True)
    def _clean(self) -> Iterator[None]:
        yield
        assert not any(name.startswith("bench-command/") for name in MEMORY_STORES)

    def test_for_people(self, capsys: pytest.CaptureFixture[str]) -> None:
        done = run_here(
            capsys, "bench", "store", "memory://bench-command", "--megabytes", "1", "--repeats", "1"
        )
        assert done.status == 0
        assert "of plain puts" in done.out
        assert "1.00 requests   (<= 1)" in done.out

    def test_for_programs(self, capsys: pytest.CaptureFixture[str]) -> None:
        done = run_here(capsys, "bench", "store", "memory://bench-command", "--megabytes", "1", "--json")
        assert {"name", "value", "unit", "ratio", "beside", "target", "at_most", "reached"} == set(
            done.lines[0]
        )
        assert len(done.lines) == 6

    def test_a_url_of_no_store(self, capsys: pytest.CaptureFixture[str]) -> None:
        run_here(capsys, "bench", "store", "nowhere").fails_with(1, "nowhere", "names no store")
