"""Damage of every class: found, and the first bad object named."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from deltastore.errors import NotFoundError, UnsupportedError
from deltastore.format.canonical import sha256_hex
from deltastore.format.pack import HEADER_BYTES, index_bytes, pack_key
from deltastore.format.records import AnchorRecord, DeltaRecord, FileRef, file_key, record_key
from deltastore.layout.live import LiveWeights
from deltastore.log import Log
from deltastore.validate import Level, Report, validate
from deltastore.writer.opening import open_writer
from deltastore.writer.whole import create_stream
from tests.doubles.models import cut_table, tiny_model
from tests.doubles.stores import contents, copied, flipped, memory_store
from tests.doubles.training import Trainer

CONFIG = b'{"model_type": "tiny"}'
Objects = dict[str, bytes]


@dataclass
class Sound:
    """A stream that is right: four versions, two anchors, several packs, a carried file."""

    objects: Objects
    manifests: dict[int, AnchorRecord | DeltaRecord]

    def named(self, start: str = "", end: str = "") -> list[str]:
        return sorted(key for key in self.objects if key.startswith(start) and key.endswith(end))

    async def replacing(self, *changes: tuple[str, bytes | None]) -> Report:
        """The report on the stream with these objects replaced, or lost where None; content tells it all."""
        changed = {**self.objects, **dict(changes)}
        objects = {key: data for key, data in changed.items() if data is not None}
        return await validate(await copied(objects), level=Level.CONTENT)


def first(report: Report) -> tuple[str, str | None]:
    """What is wrong first; every problem has one line and names an object."""
    assert not report.ok
    for problem in report.problems:
        assert "\n" not in problem.message
        assert problem.where is not None
    return report.problems[0].code, report.problems[0].where


async def found(sound: Sound, key: str, data: bytes) -> tuple[str, str | None]:
    """What is wrong first with this object replaced; another release's format is raised, not reported."""
    try:
        return first(await sound.replacing((key, data)))
    except UnsupportedError as error:
        return error.code, error.where


_built: list[Sound] = []


@pytest.fixture
async def sound() -> Sound:
    if not _built:
        _built.append(await build())
    return _built[0]


async def build() -> Sound:
    store = memory_store()
    model = tiny_model()
    config = FileRef(name="config.json", bytes=len(CONFIG), sha256=sha256_hex(CONFIG))
    await store.put(file_key(config.sha256), CONFIG)
    await create_stream(store, LiveWeights(cut_table(model, 8, 2), model), files=(config,))
    trainer = Trainer(store, model, await open_writer(store, model, pack_bytes=220))
    await trainer.step(40)
    await trainer.step(20, anchor=True)
    await trainer.step(40)
    assert (await validate(store)).problems == ()
    log = Log(store)
    return Sound(await contents(store), {version: await log.manifest(version) for version in range(4)})


async def test_the_stream_has_all_kinds_of_objects_and_several_packs(sound: Sound) -> None:
    assert {key.split("/")[0] for key in sound.objects} == {"log", "tables", "packs", "anchors", "files"}
    for version in (1, 3):
        assert len(sound.named(f"packs/{version:020d}/")) > 2
    assert len(sound.named("anchors/", "/zarr.json")) == 6
    assert len(sound.named("anchors/", "/inventory.json")) == 2


@pytest.mark.spec("DS063")
async def test_every_missing_object_is_named(sound: Sound) -> None:
    last = sound.named("log/")[-1]
    for key in sound.named():
        report = await sound.replacing((key, None))
        if key == last:
            assert report.ok, "a shorter log is a log"
            assert report.versions == 3
            continue
        assert first(report) == ("lost_object", key)
        assert {problem.where for problem in report.problems} == {key}


@pytest.mark.spec("DS061", "DS072", "DS073")
@pytest.mark.parametrize("how", ["shorter", "longer", "empty", "zeros"])
async def test_every_object_of_another_length_or_content_is_named(sound: Sound, how: str) -> None:
    for key in sound.named():
        data = sound.objects[key]
        wrong = {"shorter": data[:-1], "longer": data + b"\0", "empty": b"", "zeros": bytes(len(data))}[how]
        report = await sound.replacing((key, wrong))
        code, where = first(report)
        assert where == key
        assert code in ("bad_length", "too_large", "bad_hash", "bad_json")


@pytest.mark.spec("DS010", "DS011", "DS061", "DS072", "DS073")
@pytest.mark.parametrize("bit", [0, 3, 7])
async def test_a_flipped_bit_anywhere_is_found_and_named(sound: Sound, bit: int) -> None:
    """Bytes all over every object, in three sweeps; a `format` that becomes larger is another release's."""
    newer = 0
    for key in sound.named():
        data = sound.objects[key]
        step = max(1, len(data) // 10)
        for at in {*range(bit, len(data), step), 0, len(data) - 1}:
            code, where = await found(sound, key, flipped(data, at, bit))
            assert where == key
            assert code in ("bad_json", "bad_hash", "bad_length", "too_large", "newer_format")
            newer += code == "newer_format"
    assert newer <= 4


@pytest.mark.spec("DS061")
async def test_every_byte_of_a_packs_header_index_and_patches(sound: Sound) -> None:
    """Each byte once, where the version has several packs: nothing is looked at before its hash."""
    manifest = sound.manifests[1]
    assert isinstance(manifest, DeltaRecord)
    pack = manifest.packs[1]
    key = pack_key(1, pack.sha256)
    data = sound.objects[key]
    assert HEADER_BYTES < index_bytes(pack.rows) < len(data)
    for at in range(len(data)):
        report = await sound.replacing((key, flipped(data, at, at % 8)))
        assert first(report) == ("bad_hash", key)
        assert [problem.version for problem in report.problems] == [1]


@pytest.mark.spec("DS061")
async def test_swapped_objects_are_both_named(sound: Sound) -> None:
    for keys in (sound.named("packs/"), sound.named("anchors/"), sound.named("log/")[1:3]):
        a, b = keys[0], keys[1]
        report = await sound.replacing((a, sound.objects[b]), (b, sound.objects[a]))
        code, where = first(report)
        assert code in ("bad_hash", "bad_length", "too_large", "bad_chain", "bad_json")
        assert where in (a, b)


async def test_all_damaged_objects_are_listed_the_first_one_first(sound: Sound) -> None:
    keys = [*sound.named("packs/00000000000000000001/")[:2], *sound.named("packs/00000000000000000003/")[:2]]
    report = await sound.replacing(*((key, flipped(sound.objects[key], 70)) for key in keys))
    assert {problem.where for problem in report.problems} == set(keys)
    assert [problem.version for problem in report.problems] == [1, 1, 3, 3]


async def test_problems_are_listed_of_every_version_whatever_else_is_wrong_with_it(sound: Sound) -> None:
    """A lost pack hides no flipped one, a bad table no bad pack, a bad `zarr.json` no bad shard."""
    first_pack, second_pack = sound.named("packs/00000000000000000001/")[:2]
    metadata, shard = sound.named("anchors/", "zarr.json")[0], sound.named("anchors/", "/c/0/0/0")[0]
    (table,) = sound.named("tables/")
    flips = {key: flipped(sound.objects[key], 9) for key in (second_pack, table, metadata, shard)}
    for keys in ((first_pack, second_pack), (table, second_pack), (metadata, shard)):
        report = await sound.replacing(*((key, flips.get(key)) for key in keys))
        assert {problem.where for problem in report.problems} == set(keys)
        others = [problem for problem in report.problems if problem.where != table]
        assert len(others) == len(set(keys) - {table}), "each is reported once"


async def test_of_very_many_problems_a_hundred_are_listed() -> None:
    trainer = await Trainer.create(memory_store(), tiny_model(), table=cut_table(tiny_model(), 1))
    await trainer.step(400)
    objects = await contents(trainer.store)
    packs = [key for key in objects if key.startswith("packs/")]
    assert len(packs) < 100
    await trainer.step(400)
    await trainer.step(400)
    objects = await contents(trainer.store)
    packs = [key for key in objects if key.startswith("packs/")]
    assert len(packs) > 100
    report = await validate(await copied({key: data for key, data in objects.items() if key not in packs}))
    assert len(report.problems) == 100
    assert report.found == report.broken["DS063"] == len(packs)
    assert not report.ok
    assert report.sound == 0


@pytest.mark.spec("DS063")
class TestHoles:
    """Slots that are gone."""

    async def test_in_the_middle(self, sound: Sound) -> None:
        for key in sound.named("log/")[:-1]:
            report = await sound.replacing((key, None))
            assert first(report) == ("lost_object", key)
            assert len(report.problems) == 1

    async def test_several(self, sound: Sound) -> None:
        keys = sound.named("log/")
        report = await sound.replacing((keys[0], None), (keys[1], None), (keys[3], None))
        assert first(report) == ("lost_object", keys[0])

    async def test_all(self, sound: Sound) -> None:
        with pytest.raises(NotFoundError):
            await sound.replacing(*((key, None) for key in sound.named("log/")))


@pytest.mark.spec("DS050")
async def test_a_damaged_birth_is_reported_like_any_other_record(sound: Sound) -> None:
    key = record_key(0)
    for wrong in (b"", b"{}", sound.objects[record_key(1)], flipped(sound.objects[key], 30)):
        report = await sound.replacing((key, wrong))
        assert first(report)[1] == key
        assert report.versions == 0
