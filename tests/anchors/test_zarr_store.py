"""Any store as a store of zarr-python: anchors in memory, in a folder and on SeaweedFS, and hostile keys."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import tensorstore
import zarr
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype

from deltastore import AsyncStream
from deltastore.anchors import AnchorWeights, bfloat16
from deltastore.anchors.zarr_store import ZarrStore, anchor_store
from deltastore.errors import CorruptError, InputError, NotFoundError
from deltastore.format.records import AnchorRecord
from deltastore.replay import read_table
from deltastore.stores.base import Store
from deltastore.stores.local import LocalStore
from deltastore.stores.memory import MemoryStore
from deltastore.stores.open import open_store
from tests.anchors.models import tensors_of
from tests.doubles.models import Tensors, bf16, bits, small_model
from tests.doubles.stores import WatchedStore, contents, memory_store
from tests.servers.server import Server

PROTOTYPE = default_buffer_prototype()
BUCKET = "zarr-store"

Request: TypeAlias = RangeByteRequest | OffsetByteRequest | SuffixByteRequest


@pytest.fixture(params=["memory", "file", "s3"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """An empty store of each kind."""
    if request.param == "memory":
        yield memory_store()
    elif request.param == "file":
        yield LocalStore(tmp_path / "stream")
    else:
        server: Server = request.getfixturevalue("weed")
        async with open_store(server.url(server.bucket(BUCKET), tmp_path.name)) as opened:
            yield opened


def buffer(data: bytes) -> Any:
    return PROTOTYPE.buffer.from_bytes(data)


async def read(store: ZarrStore, key: str, part: Request | None = None) -> bytes | None:
    found = await store.get(key, PROTOTYPE, part)
    return None if found is None else found.to_bytes()


async def in_thread(work: Callable[[], Any]) -> Any:
    """zarr-python's sync face has an event loop of its own, and would block this one."""
    return await asyncio.to_thread(work)


def arrays_in(store: ZarrStore) -> dict[str, np.ndarray[Any, Any]]:
    """Every array of the group as unsigned integers, read by zarr-python."""
    group = zarr.open_group(store, mode="r")
    found = {}
    for name, array in group.arrays():
        read = np.asarray(array[...])
        found[name] = read.view(f"u{read.dtype.itemsize}") if read.dtype.itemsize in (1, 2, 4, 8) else read
    return found


async def first_version(store: Store, model: Tensors) -> AnchorRecord:
    stream = await AsyncStream.create(store, model)
    record = await stream.newest()
    assert isinstance(record, AnchorRecord)
    return record


async def test_zarr_python_reads_an_anchor_as_anchor_weights_do(store: Store) -> None:
    model = small_model()
    record = await first_version(store, model)
    table = await read_table(store, record.table)
    tensors = await tensors_of(await AnchorWeights.open(store, 0, record.anchor, table))
    found = await in_thread_arrays(await anchor_store(store))
    for number, array in enumerate(table.arrays):
        for member, name in enumerate(array.names):
            zarrs = found[f"array-{number:05d}"][member]
            assert zarrs.tobytes() == tensors[name].tobytes() == bits(model)[name].tobytes(), name


async def in_thread_arrays(store: ZarrStore) -> dict[str, np.ndarray[Any, Any]]:
    return dict(await in_thread(lambda: arrays_in(store)))


async def test_tensorstores_own_driver_reads_the_same(tmp_path: Path) -> None:
    local = LocalStore(tmp_path / "stream")
    record = await first_version(local, small_model())
    found = await in_thread_arrays(await anchor_store(local, 0))
    folder = local.root / record.anchor.prefix(0)
    for name, array in found.items():
        kvstore = {"driver": "file", "path": f"{folder / name}/"}
        opened = await tensorstore.open({"driver": "zarr3", "kvstore": kvstore}, open=True)
        assert (await opened.read()).tobytes() == array.tobytes()


async def test_what_zarr_python_writes_through_it_tensorstore_reads(tmp_path: Path) -> None:
    bfloat16.register()
    local = LocalStore(tmp_path / "store")
    values = bf16(np.random.default_rng(0).integers(0, 1 << 16, (40, 30)))
    target = ZarrStore(local, "some/group", read_only=False)

    def write() -> None:
        with zarr.config.set({"array.write_empty_chunks": True}):
            group = zarr.create_group(target)
            group.create_array("w", data=values, chunks=(10, 7), shards=(20, 14))

    await in_thread(write)
    kvstore = {"driver": "file", "path": f"{local.root}/some/group/w/"}
    opened = await tensorstore.open({"driver": "zarr3", "kvstore": kvstore}, open=True)
    assert opened.dtype.name == "bfloat16"
    assert (await opened.read()).tobytes() == values.tobytes()
    assert (await in_thread_arrays(target))["w"].tobytes() == values.tobytes()


async def test_zarr_python_writes_and_removes_on_every_store(store: Store) -> None:
    target = ZarrStore(store, "group", read_only=False)
    values = np.arange(100, dtype=np.int32).reshape(10, 10)

    def write() -> None:
        group = zarr.create_group(target)
        group.create_array("a", data=values, chunks=(4, 4))
        group.create_array("b", data=values + 1, chunks=(4, 4))
        del group["b"]

    await in_thread(write)
    found = await in_thread_arrays(target)
    assert found.keys() == {"a"}
    assert found["a"].tobytes() == values.tobytes()
    assert [info.key async for info in store.list("group/b/")] == []


async def test_a_slice_fetches_only_the_chunks_that_it_needs() -> None:
    weights = bf16(np.random.default_rng(0).integers(0, 1 << 16, (4096, 1024)))
    watched = WatchedStore(memory_store())
    await first_version(watched, {"w": weights})
    opened = await anchor_store(watched)
    watched.forget()

    def first_rows() -> np.ndarray[Any, Any]:
        array = zarr.open_group(opened, mode="r")["array-00000"]
        assert isinstance(array, zarr.Array)
        return np.asarray(array[0, :1024])

    rows = await in_thread(first_rows)
    assert rows.tobytes() == weights[:1024].tobytes()
    assert weights.nbytes / 4 < watched.fetched < weights.nbytes / 3


class TestFindingTheAnchor:
    async def test_the_newest_of_several(self) -> None:
        store, model = memory_store(), small_model()
        stream = await AsyncStream.create(store, model)
        writer = await stream.writer(model)
        for number in range(1, 4):
            model["model.norm.weight"].view(np.uint16)[0] += 1
            await writer.publish(anchor=number == 2)
        found = await anchor_store(store)
        assert found == await anchor_store(store, 2) != await anchor_store(store, 0)
        assert found.read_only
        with pytest.raises(InputError, match="version 3 is stored as a delta") as caught:
            await anchor_store(store, 3)
        assert caught.value.code == "bad_argument"

    async def test_inventory_and_sums_are_not_shown_to_zarr(self) -> None:
        store = memory_store()
        await first_version(store, small_model())
        opened = await anchor_store(store)
        shown = [key async for key in opened.list()]
        hidden = {info.key.rpartition("/")[2] async for info in store.list("anchors/")} - {"0", "zarr.json"}
        assert hidden == {"inventory.json", "sums"}
        for key in hidden:
            assert key not in shown
            assert not await opened.exists(key)
            with pytest.raises(InputError) as caught:
                await opened.with_read_only().set(key, buffer(b"x"))
            assert caught.value.code == "bad_key"

    async def test_there_is_none(self) -> None:
        with pytest.raises(NotFoundError, match="holds no stream"):
            await anchor_store(memory_store())
        store = memory_store()
        await AsyncStream.create(store, small_model())
        with pytest.raises(NotFoundError, match="no version 7"):
            await anchor_store(store, 7)


class TestRanges:
    @pytest.mark.parametrize(
        ("part", "wanted"),
        [
            (None, b"0123456789"),
            (RangeByteRequest(0, 10), b"0123456789"),
            (RangeByteRequest(3, 5), b"34"),
            (RangeByteRequest(8, 99), b"89"),
            (RangeByteRequest(10, 12), b""),
            (RangeByteRequest(50, 60), b""),
            (RangeByteRequest(4, 4), b""),
            (OffsetByteRequest(0), b"0123456789"),
            (OffsetByteRequest(7), b"789"),
            (OffsetByteRequest(10), b""),
            (OffsetByteRequest(11), b""),
            (SuffixByteRequest(1), b"9"),
            (SuffixByteRequest(10), b"0123456789"),
            (SuffixByteRequest(11), b"0123456789"),
        ],
        ids=str,
    )
    async def test_what_there_is_of_a_range(self, store: Store, part: Request | None, wanted: bytes) -> None:
        await store.put("a/b", b"0123456789")
        assert await read(ZarrStore(store, "a"), "b", part) == wanted

    @pytest.mark.parametrize(
        "part", [None, RangeByteRequest(0, 1), OffsetByteRequest(0), SuffixByteRequest(1)], ids=str
    )
    async def test_of_an_absent_object(self, part: Request | None) -> None:
        assert await read(ZarrStore(memory_store()), "b", part) is None

    async def test_an_object_that_goes_meanwhile_is_absent(self) -> None:
        watched = WatchedStore(memory_store())
        await watched.put("b", b"0123456789")
        watched.after = lambda call: (
            None if call.operation != "stat" else watched.inner._held.objects.clear()  # type: ignore[attr-defined]
        )
        assert await read(ZarrStore(watched), "b", SuffixByteRequest(3)) is None

    async def test_several_at_once(self) -> None:
        store = memory_store()
        await store.put("b", b"0123456789")
        parts = [("b", RangeByteRequest(1, 3)), ("c", None), ("b", SuffixByteRequest(2))]
        found = await ZarrStore(store).get_partial_values(PROTOTYPE, parts)
        assert [None if one is None else one.to_bytes() for one in found] == [b"12", None, b"89"]

    async def test_an_unknown_kind_of_range(self) -> None:
        store = memory_store()
        await store.put("b", b"0123456789")
        with pytest.raises(TypeError, match="Unexpected byte_range"):
            await ZarrStore(store).get("b", PROTOTYPE, (0, 4))  # type: ignore[arg-type]

    async def test_an_object_above_the_limit_is_refused(self) -> None:
        store = memory_store()
        await store.put("b", b"0123456789")
        assert await read(ZarrStore(store, limit=10), "b") == b"0123456789"
        with pytest.raises(CorruptError) as caught:
            await read(ZarrStore(store, limit=9), "b")
        assert caught.value.code == "too_large"


class TestKeys:
    HOSTILE = (
        "",
        "/",
        "../secret",
        "a/../../secret",
        "/etc/passwd",
        ".zarray",
        "a//b",
        "a/",
        "ä",
        "a\0b",
        "-x",
    )

    @pytest.fixture
    async def target(self) -> ZarrStore:
        inner = memory_store()
        await inner.put("secret", b"not yours")
        await inner.put("group/a/b", b"yours")
        return ZarrStore(inner, "group", read_only=False)

    @pytest.mark.parametrize("key", HOSTILE)
    async def test_a_hostile_key_is_absent_and_cannot_be_made(self, target: ZarrStore, key: str) -> None:
        before = await contents(target._store)
        assert await read(target, key) is None
        assert await read(target, key, SuffixByteRequest(4)) is None
        assert not await target.exists(key)
        with pytest.raises(FileNotFoundError):
            await target.getsize(key)
        await target.delete(key)
        for setting in (target.set, target.set_if_not_exists):
            with pytest.raises(InputError) as caught:
                await setting(key, buffer(b"x"))
            assert caught.value.code == "bad_key"
        assert await contents(target._store) == before

    @pytest.mark.parametrize("prefix", ["..", "../", "/", ".z", "a//", "ä"])
    async def test_nothing_is_listed_under_a_hostile_prefix(self, target: ZarrStore, prefix: str) -> None:
        assert [key async for key in target.list_prefix(prefix)] == []

    @pytest.mark.parametrize("prefix", ["..", "/x", "a//b", "ä"])
    async def test_a_hostile_prefix_makes_no_store(self, prefix: str) -> None:
        with pytest.raises(InputError) as caught:
            ZarrStore(memory_store(), prefix)
        assert caught.value.code == "bad_key"

    async def test_listing(self, store: Store) -> None:
        for key in ("g/zarr.json", "g/a/zarr.json", "g/a/c/0", "g/a-b/x", "g/a0/x", "other/x"):
            await store.put(key, b"12345")
        target = ZarrStore(store, "g")
        every = ["a-b/x", "a/c/0", "a/zarr.json", "a0/x", "zarr.json"]
        assert [key async for key in target.list()] == every
        assert [key async for key in target.list_prefix("a/")] == every[1:3]
        assert [key async for key in target.list_prefix("a")] == every[:4]
        assert sorted([name async for name in target.list_dir("")]) == ["a", "a-b", "a0", "zarr.json"]
        assert sorted([name async for name in target.list_dir("a")]) == ["c", "zarr.json"]
        assert [name async for name in target.list_dir("a/c/")] == ["0"]
        assert [name async for name in target.list_dir("absent")] == []
        assert await target.exists("a/c/0")
        assert not await target.exists("a/c")
        assert await target.getsize("a/c/0") == 5
        assert await target.getsize_prefix("a/") == 10
        assert await target.is_empty("b")

    async def test_the_whole_of_a_store(self) -> None:
        inner = memory_store()
        await inner.put("a", b"1")
        assert [key async for key in ZarrStore(inner).list()] == ["a"]


class TestWriting:
    async def test_an_anchor_is_read_only(self) -> None:
        store = memory_store()
        await first_version(store, small_model())
        before = await contents(store)
        opened = await anchor_store(store)
        for work in (
            opened.set("zarr.json", buffer(b"x")),
            opened.set_if_not_exists("new", buffer(b"x")),
            opened.delete("zarr.json"),
            opened.delete_dir(""),
            opened.clear(),
        ):
            await refused(work)
        assert await contents(store) == before

    async def test_creating_is_one_step(self) -> None:
        watched = WatchedStore(memory_store())
        target = ZarrStore(watched, read_only=False)
        await target.set_if_not_exists("a", buffer(b"first"))
        await target.set_if_not_exists("a", buffer(b"second"))
        assert await read(target, "a") == b"first"
        assert watched.keys("put", "put_if_absent", "stat") == ["a", "a"]
        await target.set("a", buffer(b"third"))
        assert await read(target, "a") == b"third"
        await target.clear()
        assert await contents(watched.inner) == {}

    async def test_only_buffers_are_stored(self) -> None:
        with pytest.raises(TypeError, match="not a Buffer"):
            await ZarrStore(memory_store(), read_only=False).set("a", b"bytes")  # type: ignore[arg-type]


class TestIdentity:
    async def test_equal_stores_name_the_same_objects(self) -> None:
        store = memory_store()
        one = ZarrStore(store, "a/")
        assert one == ZarrStore(MemoryStore(store.url), "a")
        assert len({one, ZarrStore(store, "a"), ZarrStore(store, "b")}) == 2
        assert one != ZarrStore(store, "a", read_only=False)
        assert one.with_read_only() == ZarrStore(store, "a", read_only=False)
        assert one.with_read_only(read_only=True) == one
        assert repr(one) == str(one) == f"ZarrStore({store.url!r}, 'a/', read_only=True)"

    async def test_it_goes_to_other_processes_by_its_url(self, tmp_path: Path) -> None:
        local = LocalStore(tmp_path / "store")
        await local.put("a/b", b"1")
        sent = pickle.loads(pickle.dumps(ZarrStore(local, "a")))
        assert sent == ZarrStore(local, "a")
        assert await read(sent, "b") == b"1"


async def refused(work: Awaitable[object]) -> None:
    with pytest.raises(ValueError, match="read-only"):
        await work
