"""Comparisons of versions against NumPy's of their bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from deltastore.errors import CorruptError, InputError, NotFoundError
from deltastore.format.digest import digest_text
from deltastore.format.seeds import tensor_seed
from deltastore.format.table import TensorTable
from deltastore.history.comparing import Comparison, compare_versions
from deltastore.history.counting import stream_stats
from deltastore.history.element import element_history
from deltastore.history.lineage import read_lineage
from deltastore.history.pairs import ByTensor
from deltastore.history.places import ElementName
from deltastore.kernels.reference.digest import digest_at
from deltastore.layout.live import LiveWeights
from deltastore.log import Log
from deltastore.windows import opening
from deltastore.writer.epoch import Epoch
from deltastore.writer.whole import _store_whole
from tests.doubles.forging import forge
from tests.doubles.models import Bits, bits, cut_table, small_model
from tests.doubles.stores import WatchedStore, memory_store
from tests.doubles.training import Trainer
from tests.history.test_stats import steps_of, table_of

PAIRS = ((0, 3), (3, 0), (3, 3), (1, 6), (6, 3), (0, 4), (3, 5), (6, 8), (9, 2))
"""On one path, the other way, on two branches, and of several anchors."""


def check_against(found: Comparison, dtypes: dict[str, str], old: Bits, new: Bits) -> None:
    """What is said of each tensor, and the largest steps of all."""
    said = {tensor.name: tensor for array in found.arrays for tensor in array.differing}
    sizes = []
    for name in old:
        steps = steps_of(old[name], new[name], dtypes[name])
        sizes += [abs(step) for step in steps]
        if not steps:
            assert name not in said
            continue
        one = said.pop(name)
        before, after = old[name].reshape(-1), new[name].reshape(-1)
        assert one.changed == int(np.count_nonzero(before != after)) == len(steps)
        assert abs(one.largest.step) == max(map(abs, steps))
        at = np.ravel_multi_index(one.largest.index, old[name].shape) if old[name].shape else 0
        assert (one.largest.before, one.largest.after) == (int(before[at]), int(after[at]))
        places, seed = np.arange(before.size, dtype=np.uint64), tensor_seed(name)
        difference = digest_at(after, places, seed) - digest_at(before, places, seed)
        assert one.digest_difference == digest_text(difference)
    assert not said
    assert [abs(one.step) for one in found.largest] == sorted(sizes)[::-1][:5]
    assert found.equal == (not sizes)


async def test_any_two_versions(trainer: Trainer) -> None:
    dtypes = {tensor.name: tensor.dtype.name for tensor in (await table_of(trainer)).tensors()}
    for before, after in PAIRS:
        found = await compare_versions(trainer.store, before, after)
        assert (found.before.version, found.after.version) == (before, after)
        check_against(found, dtypes, trainer.history[before], trainer.history[after])
        assert found.changed == sum(array.changed for array in found.arrays)
        assert found.elements == sum(bits.size for bits in trainer.history[0].values())


async def test_how_versions_are_compared(trainer: Trainer) -> None:
    for pair, by_patches in (
        ((0, 3), True),
        ((3, 6), True),
        ((0, 4), False),
        ((4, 5), True),
        ((6, 8), False),
    ):
        assert (await compare_versions(trainer.store, *pair)).by_patches == by_patches
    newest = await compare_versions(trainer.store, 0, None)
    assert newest.after.version == max(trainer.history)
    with pytest.raises(NotFoundError):
        await compare_versions(trainer.store, 0, 99)


async def test_only_some_tensors(trainer: Trainer) -> None:
    for only, names in (
        ("model.norm.weight", {"model.norm.weight"}),
        ("*.mlp.*", {f"model.layers.{layer}.mlp.up_proj.weight" for layer in range(3)}),
        ("*layers.[02].*", {f"model.layers.{layer}.mlp.up_proj.weight" for layer in (0, 2)}),
    ):
        found = await compare_versions(trainer.store, 0, 8, only=only)
        assert sum(array.tensors for array in found.arrays) == len(names)
        assert {tensor.name for array in found.arrays for tensor in array.differing} <= names
        differing = sum(
            int(np.count_nonzero(trainer.history[0][name] != trainer.history[8][name])) for name in names
        )
        assert found.changed == differing
    with pytest.raises(InputError, match="no_such") as caught:
        await compare_versions(trainer.store, 0, 8, only="no_such*")
    assert caught.value.code == "unknown_tensor"


async def test_chunks_that_nothing_patches_are_not_read() -> None:
    model = small_model()
    trainer = await Trainer.create(memory_store(), model, table=cut_table(model, 16))
    model["model.steps"][1] += 1
    await trainer.publish()
    watched = WatchedStore(trainer.store)
    found = await compare_versions(watched, 0, 1)
    assert found.changed == 1
    shards = [call.key for call in watched.calls if "/c/" in call.key]
    assert len(shards) == 1


async def test_manifests_that_say_otherwise_are_found_out() -> None:
    trainer = await Trainer.create(memory_store(), small_model())
    await trainer.steps(2, 9)
    await forge(trainer.store, (await read_lineage(trainer.store)).known[2].slot, digest="0" * 16)
    with pytest.raises(CorruptError) as caught:
        await compare_versions(trainer.store, 0, 2)
    assert (caught.value.code, caught.value.rule) == ("bad_digest", "DS062")


async def test_versions_of_other_tables() -> None:
    """An anchor may bring another table: tensors that come and go, and chunks that are cut otherwise."""
    old = small_model(1)
    new = {**small_model(2), "model.layers.7.mlp.up_proj.weight": old["model.layers.0.mlp.up_proj.weight"]}
    del new["model.scale"]
    tables = cut_table(old, 7), cut_table(new, 20)
    other = ByTensor(LiveWeights(tables[0], old), LiveWeights(tables[1], new))
    for number, array in enumerate(tables[0].arrays):
        for chunk, box in array.grid.boxes():
            after = await other.read(number, chunk)
            for offset in range(box.size[0]):
                name = array.names[box.start[0] + offset]
                expected = old[name] if name == "model.scale" else new[name]
                part = expected.view(f"<u{expected.dtype.itemsize}")[box.slices[1:]]
                assert (after[offset] == part).all(), name


async def test_an_anchor_with_another_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are replayed, window by window, and every question goes on over the change."""
    monkeypatch.setattr(opening, "WINDOW_BYTES", 64)
    trainer = await Trainer.create(memory_store(), small_model(), table=cut_table(small_model(), 7))
    await trainer.steps(2, 20)
    new = {**small_model(2), "a": np.arange(9, dtype=np.uint16)}
    del new["model.scale"]
    epoch = await Epoch.begin(Log(trainer.store), resumes=2, label="")
    await _store_whole(trainer.store, epoch, LiveWeights(cut_table(new, 20), new), None, None, (), None)
    found = await compare_versions(trainer.store, 2, 3)
    assert (found.by_patches, found.missing, found.added) == (False, ("model.scale",), ("a",))
    dtypes = {tensor.name: tensor.dtype.name for tensor in (await table_of(trainer)).tensors()}
    old = {name: kept for name, kept in trainer.history[2].items() if name in new}
    found = replace(found, missing=(), added=())
    check_against(found, dtypes, old, {name: bits(new)[name] for name in old})
    name = ElementName("model.norm.weight", (5,))
    history = await element_history(trainer.store, name)
    assert history.events[-1].bits == int(bits(new)["model.norm.weight"][5])
    assert (await element_history(trainer.store, ElementName("a", (1,)))).skipped == (0, 1, 2)
    assert [one.kind for one in await stream_stats(trainer.store)] == ["anchor", "delta", "delta", "anchor"]


def test_a_table_of_another_shape_is_of_other_tensors() -> None:
    from deltastore.history.comparing import only_in

    def table(**shapes: tuple[int, ...]) -> TensorTable:
        return cut_table({name: np.zeros(shape, np.float32) for name, shape in shapes.items()}, 100)

    one, other = table(a=(2, 3), b=(4,), c=(1,)), table(a=(3, 2), b=(4,), d=(1,))
    assert only_in(one, other, None) == ["a", "c"]
    assert only_in(other, one, None) == ["a", "d"]
    assert only_in(one, other, "[b-z]") == ["c"]


async def test_anchors_have_no_base(trainer: Trainer) -> None:
    known = (await read_lineage(trainer.store)).known
    assert [version for version, one in known.items() if one.base is None] == [0, 4, 8]
