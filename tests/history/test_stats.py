"""Statistics against what is counted, tensor by tensor, in the bits of the versions."""

from __future__ import annotations

from collections import Counter
from math import log2
from typing import Any

import numpy as np
import pytest

from deltastore.errors import InputError, NotFoundError
from deltastore.format.dtypes import DTYPES
from deltastore.format.names import split_name
from deltastore.format.records import DeltaRecord, record_key
from deltastore.history.across_versions import densities, summarize
from deltastore.history.counting import stream_stats
from deltastore.history.lineage import read_lineage
from deltastore.history.version_stats import VersionStats
from deltastore.log import Manifest
from deltastore.stores.base import Store
from deltastore.windows import opening
from tests.doubles.models import Bits, Tensors
from tests.doubles.stores import memory_store
from tests.doubles.training import Trainer

CLASSES = (("-1", -1, -1), ("+1", 1, 1), ("2..7", 2, 7), ("8..127", 8, 127), ("128..", 128, 1 << 70))


def ordered(bits: int, width: int, floating: bool) -> int:
    """Section 6.1, one element at a time."""
    if floating and bits >> (width - 1):
        bits ^= (1 << (width - 1)) - 1
    return bits - ((bits >> (width - 1)) << width)


def steps_of(old: Any, new: Any, dtype: str) -> list[int]:
    """The steps of the elements that differ, each as section 6.1 counts it, modulo 2^W."""
    width, floating = DTYPES[dtype].bits, DTYPES[dtype].floating
    found = []
    for before, after in zip(old.reshape(-1).tolist(), new.reshape(-1).tolist(), strict=True):
        if before != after:
            step = (ordered(after, width, floating) - ordered(before, width, floating)) % (1 << width)
            found.append(step - (step >> (width - 1) << width))
    return found


def entropy(counts: Any) -> float:
    known = [int(count) for count in counts if count]
    return sum((count * log2(sum(known) / count) for count in known), 0.0)


def classes(steps: list[int]) -> dict[str, int]:
    return {
        name: sum(low <= (step if low == high else abs(step)) <= high for step in steps)
        for name, low, high in CLASSES
    }


async def record_bytes(store: Store, slot: int) -> int:
    return len(await store.get(record_key(slot), limit=1 << 22))


def check_against(one: VersionStats, dtypes: dict[str, str], old: Bits, new: Bits) -> None:
    """Everything that the bits tell of a version."""
    every: list[int] = []
    positions = 0.0
    by_pattern: dict[tuple[str, str], list[int]] = {}
    by_layer: Counter[tuple[str, int | None]] = Counter()
    for name in old:
        pattern, index = split_name(name)
        steps = steps_of(old[name], new[name], dtypes[name])
        every += steps
        by_pattern.setdefault((pattern, dtypes[name]), []).extend(steps)
        by_layer[pattern, index[0] if index else None] += len(steps)
        positions += entropy((len(steps), old[name].size - len(steps)))
    assert one.changed == len(every)
    assert one.elements == sum(bits.size for bits in old.values())
    assert one.steps == classes(every)
    assert one.bound is not None
    assert one.bound.positions == pytest.approx(positions / 8, rel=1e-9)
    assert one.bound.steps == pytest.approx(entropy(Counter(every).values()) / 8, rel=1e-9)
    for array in one.arrays:
        mine = by_pattern[array.pattern, array.dtype]
        assert (array.changed, array.steps) == (len(mine), classes(mine))
        assert array.bound.steps == pytest.approx(entropy(Counter(mine).values()) / 8, rel=1e-9)
        for layer in array.layers:
            assert layer.changed == by_layer[array.pattern, layer.layer]
    assert sum(layer.elements for array in one.arrays for layer in array.layers) == one.elements


async def test_every_number_is_that_of_the_bits(trainer: Trainer) -> None:
    found = await stream_stats(trainer.store)
    manifests = await manifests_of(trainer.store)
    assert [one.version for one in found] == list(manifests)
    for one in found:
        record = manifests[one.version]
        assert one.said == record.statistics.changed
        assert one.step == record.metadata.get("step")
        if not isinstance(record, DeltaRecord):
            assert (one.kind, one.changed, one.arrays) == ("anchor", None, ())
            inventory = record.anchor.inventory_bytes
            assert one.total == record.statistics.bytes + inventory + await record_bytes(
                trainer.store, record.slot
            )
            continue
        dtypes = {tensor.name: tensor.dtype.name for tensor in (await table_of(trainer)).tensors()}
        check_against(one, dtypes, trainer.history[record.base], trainer.history[record.version])
        assert one.changed == record.statistics.changed  # the detector compared with a copy
        packs = sum(pack.bytes for pack in record.packs)
        assert one.total == packs + await record_bytes(trainer.store, record.slot)
        assert sum(one.written.values()) == sum(pack.count for pack in record.packs)
    # In chunks of 4 elements of BF16 nothing is smaller than the raw form.
    tiny = (
        max(array.grid.box(0).elements for array in (await table_of(trainer)).arrays if len(array.grid)) == 4
    )
    assert ({"raw"} if tiny else {"2", "absolute"}) <= {width for one in found for width in one.written}


async def manifests_of(store: Store) -> dict[int, Manifest]:
    lineage = await read_lineage(store)
    return {version: await lineage.record(version) for version in lineage.known}


async def table_of(trainer: Trainer) -> Any:
    from deltastore.replay import read_table

    manifests = await manifests_of(trainer.store)
    return await read_table(trainer.store, manifests[0].table)


async def test_packs_alone_tell_bytes_and_widths(trainer: Trainer) -> None:
    exact, alone = await stream_stats(trainer.store), await stream_stats(trainer.store, packs_only=True)
    for one, other in zip(exact, alone, strict=True):
        assert (one.version, one.kind, one.nbytes, one.written) == (
            *(other.version, other.kind),
            *(other.nbytes, other.written),
        )
        assert (other.changed, other.steps) == (None, None)
        assert [array.nbytes for array in one.arrays] == [array.nbytes for array in other.arrays]
        written = sum(layer.changed for array in other.arrays for layer in array.layers)
        assert written == sum(other.written.values())
        if one.changed is not None and one.changed == written and one.bound and other.bound:
            assert other.bound.positions == pytest.approx(one.bound.positions)


async def test_a_range_of_versions_has_the_numbers_of_the_whole(trainer: Trainer) -> None:
    every = {one.version: one for one in await stream_stats(trainer.store)}
    for first, last in ((7, 7), (5, 8), (None, 2), (10, None)):
        for one in await stream_stats(trainer.store, first, last):
            assert one == every[one.version]
    with pytest.raises(NotFoundError, match="no version is in 40 to 50; the stream has 0 to") as caught:
        await stream_stats(trainer.store, 40, 50)
    assert caught.value.code == "no_version"
    with pytest.raises(NotFoundError, match="no version is from 40 on"):
        await stream_stats(trainer.store, 40)
    with pytest.raises(InputError, match="the lower one first"):
        await stream_stats(trainer.store, 5, 3)


async def test_windows_change_no_number(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = await stream_stats(trainer.store)
    monkeypatch.setattr(opening, "WINDOW_BYTES", 100)
    assert await stream_stats(trainer.store) == whole


async def test_raw_chunks_and_writes_that_change_nothing_are_told_apart() -> None:
    model: Tensors = {"w": np.arange(64, dtype=np.uint16).reshape(8, 8), "v": np.zeros(4, np.float32)}
    trainer = await Trainer.create(memory_store(), model)
    model["w"][...] = np.random.default_rng(3).integers(0, 1 << 16, (8, 8), np.uint16)
    model["w"][0, 0] = 0
    await trainer.publish()
    (_, one) = await stream_stats(trainer.store)
    assert one.written == {"raw": 64}
    assert one.changed == 63
    assert one.nbytes["raw"] == 128
    assert one.nbytes["low bits"] == one.nbytes["residues"] == 0


async def test_progress_ends_where_it_says(trainer: Trainer) -> None:
    for packs_only in (False, True):
        seen: list[tuple[int, int]] = []
        await stream_stats(
            trainer.store, packs_only=packs_only, progress=lambda *at, into=seen: into.append(at)
        )
        assert seen[-1][0] == seen[-1][1] > 0
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)


async def test_versions_together(trainer: Trainer) -> None:
    found = [one for one in await stream_stats(trainer.store) if one.kind == "delta"]
    arrays = {one.pattern: one for one in summarize(found)}
    layered = arrays["model.layers.*.mlp.up_proj.weight"]
    assert layered.changed == sum(
        array.changed or 0 for one in found for array in one.arrays if array.pattern == layered.pattern
    )
    assert layered.versions == len(found)
    density = densities(found)
    assert density.layers == (0, 1, 2)
    assert density.projections == ("mlp.up_proj",)
    mean = sum(density.shares.values()) / 3
    assert mean == pytest.approx(layered.share)
    assert density.others["model.norm"] == pytest.approx(arrays["model.norm.weight"].share)


async def test_a_store_without_versions() -> None:
    with pytest.raises(NotFoundError):
        await stream_stats(memory_store())
