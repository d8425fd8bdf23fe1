"""Several packs over the same chunks: their indexes are merged, whatever fits into memory at once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from deltastore.errors import CorruptError
from deltastore.format.pack import PackIndex, pack_key
from deltastore.format.records import PackRef
from deltastore.format.table import TensorTable
from deltastore.stores.memory import MemoryStore
from deltastore.validate.objects import shared
from deltastore.validate.objects.packs import CheckedPack, check_pack
from tests.doubles.models import Bits, bits, cut_table, small_model
from tests.doubles.stores import WatchedStore, memory_store
from tests.doubles.writers import pack_of


class Divided:
    """A delta that several writers divide among themselves, none of them at all chunks."""

    def __init__(self, table: TensorTable, old: Bits, new: Bits) -> None:
        self.table = table
        self.old = old
        self.new = new
        self.store: MemoryStore = memory_store()

    @classmethod
    def make(cls, seed: int, slabs: int) -> Divided:
        random = np.random.default_rng(seed)
        model = small_model()
        old = bits(model)
        new = {name: before ^ (random.random(before.shape) < 0.4) for name, before in old.items()}
        return cls(cut_table(model, 16, slabs), old, new)

    async def pack(self, owner: Any) -> CheckedPack:
        pack, _ = pack_of(self.table, 1, self.old, self.new, owner)
        await self.store.put(pack_key(1, pack.sha256), pack.data)
        ref = PackRef(
            sha256=pack.sha256,
            bytes=len(pack.data),
            index_sha256=pack.index_sha256,
            rows=pack.rows,
            count=pack.count,
            slabs=pack.slabs,
        )
        return await check_pack(self.store, 1, ref, self.table)


def owner_of(writer: int, writers: int, seed: int, extra: int | None = None) -> Any:
    """Every chunk belongs to some writers, chosen at random; of chunk ``extra`` this one takes all."""
    chosen = np.random.default_rng(seed)
    seen = iter(range(1 << 30))

    def owner(positions: Any) -> Any:
        mine = np.flatnonzero(chosen.random(writers) < 0.6)
        number = next(seen)
        if number == extra:
            return np.ones(len(positions), bool)
        at = np.flatnonzero(mine == writer)
        return (positions % len(mine) == at[0]) if len(at) else np.zeros(len(positions), bool)

    return owner


@pytest.mark.spec("DS045")
@pytest.mark.parametrize("rows", [2, 7, 1 << 14])
@pytest.mark.parametrize("seed", range(4))
async def test_one_element_in_two_packs_is_found_and_nothing_else(
    seed: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "_BATCH_BYTES", 40 * rows)
    divided, writers = Divided.make(seed, slabs=seed % 3), 2 + seed
    packs = [await divided.pack(owner_of(writer, writers, seed)) for writer in range(writers)]
    spy = WatchedStore(divided.store)
    await shared.check_shared(spy, 1, "log/x", divided.table, packs, run=rows)
    assert spy.fetched <= sum(pack.nbytes for pack in packs), "nothing is read twice"
    chunks, found = len(divided.table.chunk_order()), 0
    for extra in range(0, chunks, max(chunks // 6, 1)):
        greedy = [await divided.pack(owner_of(0, writers, seed, extra)), *packs[1:]]
        error = await problem(divided, greedy, rows)
        assert (error is None) == (not await overlap(divided, greedy))
        if error is not None:
            found += 1
            assert (error.code, error.rule, error.where) == ("bad_patch", "DS045", "log/x")
            assert error.tensor in {array.pattern for array in divided.table.arrays}
    assert found > 2


async def problem(divided: Divided, packs: list[CheckedPack], rows: int) -> CorruptError | None:
    try:
        await shared.check_shared(divided.store, 1, "log/x", divided.table, packs, run=rows)
    except CorruptError as error:
        return error
    return None


async def overlap(divided: Divided, packs: list[CheckedPack]) -> bool:
    """Whether an element is in two packs, by looking at each."""
    seen: set[tuple[int, int, int]] = set()
    count = 0
    for pack in packs:
        data = memoryview(await divided.store.get(pack.key, limit=1 << 24))
        index = PackIndex.parse(data, divided.table, pack.key)
        for _, row, start, end in index.patches():
            positions = index.read_patch(row, data[start:end], divided.table).positions.tolist()
            seen.update((int(row["array"]), int(row["chunk"]), position) for position in positions)
            count += len(positions)
    return len(seen) < count


async def test_patches_that_stand_together_are_one_request() -> None:
    divided, writers = Divided.make(2, slabs=0), 3
    packs = [await divided.pack(owner_of(writer, writers, 2)) for writer in range(writers)]
    spy = WatchedStore(divided.store)
    await shared.check_shared(spy, 1, "log/x", divided.table, packs)
    assert len(spy.calls) == 2 * writers, "an index and a range of patches each"


@pytest.mark.spec("DS044")
async def test_a_patch_that_is_another_when_it_is_read_again_is_found() -> None:
    divided, writers = Divided.make(2, slabs=0), 3
    packs = [await divided.pack(owner_of(writer, writers, 2)) for writer in range(writers)]
    key = packs[1].key
    data = bytearray(await divided.store.get(key, limit=1 << 24))
    data[-1] ^= 1
    changed = memory_store()
    for pack in packs:
        found = await divided.store.get(pack.key, limit=1 << 24)
        await changed.put(pack.key, bytes(data) if pack.key == key else found)
    with pytest.raises(CorruptError, match="hash") as caught:
        await shared.check_shared(changed, 1, "log/x", divided.table, packs)
    assert (caught.value.code, caught.value.rule, caught.value.where) == ("bad_hash", "DS044", key)


async def test_packs_that_follow_one_another_are_not_read_again() -> None:
    divided = Divided.make(0, slabs=0)
    order = len(divided.table.chunk_order())

    def part(low: int, high: int) -> Any:
        seen = iter(range(1 << 30))
        return lambda positions: np.full(len(positions), low <= next(seen) < high)

    thirds = [(0, order // 3), (order // 3, order // 2), (order // 2, order)]
    packs = [await divided.pack(part(low, high)) for low, high in reversed(thirds)]
    spy = WatchedStore(divided.store)
    await shared.check_shared(spy, 1, "log/x", divided.table, packs)
    await shared.check_shared(spy, 1, "log/x", divided.table, packs[:1])
    await shared.check_shared(spy, 1, "log/x", divided.table, [])
    assert spy.calls == []
    with pytest.raises(CorruptError):
        await shared.check_shared(spy, 1, "log/x", divided.table, [*packs, packs[1]])
