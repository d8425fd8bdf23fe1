"""Everything is fetched and checked before the first element is written: damage leaves the weights alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from deltastore.anchors.chunk_sums import SUMS_KEY
from deltastore.errors import CorruptError, StoreError
from deltastore.format.pack import HEADER_BYTES, index_bytes, pack_key
from deltastore.validate import validate
from tests.doubles.models import Bits, differing, small_model
from tests.doubles.stores import WatchedStore, contents, fail_at, flipped, memory_store, restore
from tests.doubles.training import Engine, Trainer

from .behind import Behind, behind


async def at_version_1(trainer: Trainer) -> Engine:
    """An engine that adopted version 1, so that it need not fetch it."""
    engine = await Engine.start(trainer.store, trainer.model)
    for name, old in trainer.history[1].items():
        engine.tensors[name].view(old.dtype)[...] = old
    await engine.reader.sync(1)
    return engine


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.spec("DS090", "DS092")
async def test_a_store_that_fails_at_any_fetch_leaves_a_whole_version(when: str) -> None:
    store = WatchedStore(memory_store())
    trainer = await Trainer.create(store, small_model())
    for _ in range(3):
        await trainer.step(40)
    engine = await at_version_1(trainer)
    store.forget()
    await engine.reader.sync()
    total, failures = len(store.calls), []
    for number in range(1, total + 1):
        engine = await at_version_1(trainer)
        store.forget()
        setattr(store, when, fail_at(number))
        try:
            await engine.reader.sync()
        except StoreError:
            failures.append(engine.reader.version)
        store.before = store.after = None
        assert not engine.reader.torn
        assert engine.wrong(trainer.history) == []
        await engine.reader.sync()
        assert engine.reader.version == 3
        assert engine.wrong(trainer.history) == []
    assert len(failures) >= total - 2
    assert set(failures) == {1, 2}, "the first delta was whole when the second failed"


@pytest.mark.spec("DS044", "DS061", "DS090")
async def test_a_flipped_bit_anywhere_in_a_pack() -> None:
    stream = await behind(pack_bytes=1 << 20, changes=60)
    (key,) = stream.keys
    data = stream.sound[key]
    header = set(range(HEADER_BYTES))
    rows = set(range(HEADER_BYTES, index_bytes(stream.record.packs[0].rows), 7))
    patches = set(range(index_bytes(stream.record.packs[0].rows), len(data), 5))
    for at in sorted(header | rows | patches):
        await stream.store.put(key, flipped(data, at, at % 8))
        await stream.refused("bad_hash", where=key)
    await stream.mend()
    await stream.engine.reader.sync()
    assert stream.engine.wrong(stream.trainer.history) == []


@pytest.mark.spec("DS061", "DS063", "DS090")
async def test_truncated_extended_empty_and_missing_packs() -> None:
    stream = await behind()
    for key in stream.keys[:: max(1, len(stream.keys) // 3)]:
        data = stream.sound[key]
        for size in (0, 1, HEADER_BYTES, HEADER_BYTES + 44, len(data) - 4, len(data) - 1):
            await stream.store.put(key, data[:size])
            await stream.refused("bad_length", where=key)
        for more in (b"\0", data):
            await stream.store.put(key, data + more)
            await stream.refused("too_large", "bad_length", where=key)
        await stream.store.delete(key)
        await stream.refused("lost_object", where=key)
        await stream.mend()
    await stream.engine.reader.sync()
    assert stream.engine.wrong(stream.trainer.history) == []


@pytest.mark.spec("DS061")
async def test_swapped_packs() -> None:
    stream = await behind()
    assert len(stream.keys) > 3
    sizes = [len(stream.sound[key]) for key in stream.keys]
    first = next(at for at in range(len(sizes)) if sizes.count(sizes[at]) > 1)
    second = sizes.index(sizes[first], first + 1)
    a, b = stream.keys[first], stream.keys[second]
    await stream.store.put(a, stream.sound[b])
    await stream.store.put(b, stream.sound[a])
    await stream.refused("bad_hash", where=a)


SOUND: list[Callable[[Behind], Awaitable[object]]] = [
    lambda stream: stream.store.put("packs/garbage", b"x"),
    lambda stream: stream.store.put("log/notes.txt", b"x"),
    lambda stream: stream.store.put(pack_key(2, "0" * 64), b"x"),
    lambda stream: stream.store.put("anchors/00000000000000000002/what.json", b"x"),
]


@pytest.mark.parametrize("litter", SOUND)
async def test_objects_that_no_record_names_are_nothing(
    litter: Callable[[Behind], Awaitable[object]],
) -> None:
    stream = await behind()
    await litter(stream)
    await stream.engine.reader.sync()
    assert stream.engine.wrong(stream.trainer.history) == []
    assert (await validate(stream.store)).problems == ()


@pytest.mark.spec("DS072", "DS073", "DS093")
async def test_a_damaged_anchor_never_becomes_a_version() -> None:
    """An anchor is written as it arrives; what is wrong leaves the reader torn, and it says so."""
    store = memory_store()
    trainer = await Trainer.create(store, small_model())
    sound = await contents(store)
    history: Bits = trainer.history[0]
    for key in sorted(sound):
        if not key.startswith(("anchors/", "tables/")) or key.endswith(SUMS_KEY):
            continue
        for damaged in (None, flipped(sound[key], len(sound[key]) // 2), sound[key][:-1]):
            await store.delete(key)
            if damaged is not None:
                await store.put(key, damaged)
            if key.startswith("tables/"):
                with pytest.raises(CorruptError) as caught:
                    await Engine.start(store, trainer.model)
            else:
                engine = await Engine.start(store, trainer.model)
                with pytest.raises(CorruptError) as caught:
                    await engine.reader.sync()
            assert caught.value.where == key
            await restore(store, sound)
            if key.startswith("anchors/"):
                assert engine.reader.version is None
                await engine.reader.sync()
                assert engine.state() == (0, False)
                assert differing(engine.tensors, history) == []
