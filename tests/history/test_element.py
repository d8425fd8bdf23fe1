"""The history of elements against the bits of every version, and against the bytes that it points to."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from deltastore.errors import CorruptError, InputError
from deltastore.format.pack import pack_key
from deltastore.format.records import DeltaRecord
from deltastore.history.element import ElementHistory, element_history
from deltastore.history.places import ElementName
from deltastore.stores.base import Store
from tests.doubles.stores import WatchedStore, contents, copied, flipped
from tests.doubles.training import Trainer
from tests.history.test_stats import manifests_of, ordered, table_of


def values(found: ElementHistory, bases: dict[int, int | None]) -> dict[int, int]:
    """The bits at every version: of the one that wrote them, or of the base."""
    written = {event.version: event.bits for event in found.events}
    known: dict[int, int] = {}
    for version, base in bases.items():
        known[version] = written[version] if version in written or base is None else known[base]
    return known


async def stands_there(store: Store, found: ElementHistory) -> None:
    """The bytes that each event points to hold what it says."""
    width = found.dtype.bits
    for event in found.events:
        data = await store.get_range(event.key, event.offset, -(-(event.bit + event.width) // 8))
        residue = (int.from_bytes(data, "little") >> event.bit) % (1 << event.width)
        if event.base is None or event.run is None:
            assert residue == event.bits
        else:
            assert residue == ordered(event.bits, width, found.dtype.floating) % (1 << event.width)


async def test_elements_have_the_values_of_every_version(trainer: Trainer) -> None:
    manifests = await manifests_of(trainer.store)
    bases = {
        version: record.base if isinstance(record, DeltaRecord) else None
        for version, record in manifests.items()
    }
    draw = np.random.default_rng(11)
    widths = set()
    for name, first in trainer.history[0].items():
        if not first.size:
            continue
        moved = [
            flat
            for flat in range(first.size)
            if len({int(bits[name].reshape(-1)[flat]) for bits in trainer.history.values()}) > 1
        ]
        chosen = {*moved[:1], *moved[-1:]} or {int(draw.integers(first.size))}
        for flat in chosen:
            index = tuple(int(at) for at in np.unravel_index(flat, first.shape)) if first.shape else ()
            found = await element_history(trainer.store, ElementName(name, index))
            known = values(found, bases)
            for version, bits in trainer.history.items():
                assert known[version] == int(bits[name].reshape(-1)[flat]), (name, flat, version)
            await stands_there(trainer.store, found)
            widths |= {(event.width, event.run is None) for event in found.events}
            for event in found.events:
                if event.base is not None:
                    before = ordered(known[event.base], found.dtype.bits, found.dtype.floating)
                    after = ordered(event.bits, found.dtype.bits, found.dtype.floating)
                    assert (after - before - (event.step or 0)) % (1 << found.dtype.bits) == 0
    # In chunks of 4 elements of BF16 nothing is smaller than the raw form.
    assert (16, True) in widths
    assert (2, False) in widths or (await table_of(trainer)).arrays[0].chunk[0] <= 4


async def test_flat_and_negative_indexes_are_the_same_element(trainer: Trainer) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    ways = [(3, 5), (29,), (-3, -3), (-19,), (3, -3)]
    found = [await element_history(trainer.store, ElementName(name, index)) for index in ways]
    assert all(one == found[0] for one in found)
    assert found[0].place.index == (3, 5)


async def test_what_is_fetched(trainer: Trainer) -> None:
    watched = WatchedStore(trainer.store)
    name = "model.router.weight"
    found = await element_history(watched, ElementName(name, (1, 1)))
    fetched = [call for call in watched.calls if call.key.startswith("packs/")]
    records = await manifests_of(trainer.store)
    packs = sum(len(record.packs) for record in records.values() if isinstance(record, DeltaRecord))
    assert {call.operation for call in fetched} == {"get_range"}
    # An index for each pack of its slab, and the patches of one chunk.
    assert len(fetched) <= packs + len(records)
    table = await table_of(trainer)
    slab = int(table.arrays[found.place.array].slabs(np.array([found.place.chunk]), table.slabs)[0])
    others = {
        pack_key(version, pack.sha256)
        for version, record in records.items()
        for pack in (record.packs if isinstance(record, DeltaRecord) else ())
        if not pack.slabs[0] <= slab <= pack.slabs[1]
    }
    assert bool(others) == (table.slabs > 1)
    assert not others & {call.key for call in fetched}
    assert found.versions == len(records)


async def test_a_chunk_with_a_wrong_checksum_is_refused(trainer: Trainer) -> None:
    found = await element_history(trainer.store, ElementName("model.router.weight", (1, 1)))
    anchor = found.events[0]
    damaged = await copied(await contents(trainer.store))
    data = await damaged.get(anchor.key, limit=1 << 30)
    await damaged.put(anchor.key, flipped(data, anchor.offset))
    with pytest.raises(CorruptError) as caught:
        await element_history(damaged, ElementName("model.router.weight", (1, 1)))
    assert (caught.value.code, caught.value.where) == ("bad_hash", anchor.key)


@pytest.mark.parametrize(
    ("text", "tensor", "index"),
    [
        ("w[3,17]", "w", (3, 17)),
        ("w[ 3 , -17 ]", "w", (3, -17)),
        ("w[0]", "w", (0,)),
        ("w[]", "w", ()),
        ("w", "w", ()),
        ("a.b[c].d[1]", "a.b[c].d", (1,)),
    ],
)
def test_names_of_elements(text: str, tensor: str, index: tuple[int, ...]) -> None:
    assert ElementName.parse(text) == ElementName(tensor, index)


@pytest.mark.parametrize("text", ["w[a]", "w[1,]", "w[1:2]", "w[1.5]", "w[" + "9" * 30 + "]", "w[--1]"])
def test_what_is_no_name_of_an_element(text: str) -> None:
    with pytest.raises(InputError, match="TENSOR") as caught:
        ElementName.parse(text)
    assert caught.value.code == "bad_argument"


async def test_elements_that_are_not_there(trainer: Trainer) -> None:
    cases: list[tuple[str, tuple[int, ...], str, str]] = [
        ("model.layers.1.mlp.up_proj.weigth", (0,), "unknown_tensor", "model.layers.1.mlp.up_proj.weight"),
        ("zzz", (0,), "unknown_tensor", "no tensor 'zzz'"),
        ("model.norm.weight", (12,), "bad_argument", "index 12 is out of range"),
        ("model.norm.weight", (-13,), "bad_argument", "out of range"),
        ("model.norm.weight", (), "bad_argument", "give 1 numbers"),
        ("model.router.weight", (32,), "bad_argument", "32 elements"),
        ("model.router.weight", (1, 2, 3), "bad_argument", "shape [4, 8]"),
        ("model.nothing", (0,), "bad_argument", "out of range"),
        ("model.scale", (1,), "bad_argument", "out of range"),
    ]
    for name, index, code, words in cases:
        with pytest.raises(InputError) as caught:
            await element_history(trainer.store, ElementName(name, index))
        assert caught.value.code == code
        assert words in str(caught.value)


async def test_every_element_of_a_small_tensor_has_one_place(trainer: Trainer) -> None:
    table = await table_of(trainer)
    places = [
        ElementName("model.fp8.weight", index).of(table) for index in itertools.product(range(5), range(3))
    ]
    assert len({(place.chunk, place.position) for place in places}) == 15
    for place in places:
        array = table.arrays[place.array]
        member, flat = array.grid.locate(array.grid.box(place.chunk), np.array([place.position]))
        assert (int(member[0]), int(flat[0])) == (place.member, place.index[0] * 3 + place.index[1])
