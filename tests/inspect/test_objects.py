"""Every object of small streams: what it is, and that no damage to it goes unnoticed."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest

from deltastore.cli.inspect_text import inspection_lines
from deltastore.errors import CorruptError, InputError, NotFoundError, UnsupportedError, UsageError
from deltastore.format.attestation import Attestation
from deltastore.format.canonical import canonical_bytes, seal
from deltastore.inspect import json_objects
from deltastore.inspect.found import Inspection, Wanted
from deltastore.inspect.looking import inspect_object
from deltastore.inspect.source import open_source, split_place
from deltastore.validate.checks import CHECKS
from tests.doubles.models import cut_table, small_model
from tests.doubles.stores import contents, memory_store
from tests.doubles.training import Trainer

VECTORS = Path(__file__).resolve().parents[2] / "spec" / "vectors"
STREAMS = VECTORS / "streams"
LAYOUTS = json.loads((VECTORS / "layout.json").read_text(encoding="ascii"))


async def looked_at(place: str | Path, wanted: Wanted | None = None) -> Inspection:
    source = await open_source(str(place))
    try:
        found = await inspect_object(source, wanted)
    finally:
        await source.close()
    assert json.dumps(found.as_json())  # whatever was found can be printed
    for problem in found.problems:
        assert isinstance(problem, CorruptError | UnsupportedError | InputError)
        assert problem.rule in CHECKS
    return found


def kind_of(key: str) -> str:
    """What an object is, by where it stands."""
    folder, name = key.split("/")[0], key.rpartition("/")[2]
    if folder == "anchors":
        by_name = {"zarr.json": "anchor metadata", "inventory.json": "inventory", "sums": "chunk sums"}
        return by_name.get(name, "shard")
    by_folder = {
        "log": "record",
        "tables": "table",
        "packs": "pack",
        "files": "carried file",
        "claims": "claim",
    }
    if folder in by_folder:
        return by_folder[folder]
    by_name = {"call": "call", "attempt": "attempt", "refused": "ending", "aborted": "ending"}
    stem = name.removesuffix(".json")
    return by_name.get(stem, "join" if folder == "joining" else "vote")


async def make_stream() -> dict[str, bytes]:
    """Versions 0 to 4, of which 3 is stored whole, in small chunks."""
    model = small_model()
    trainer = await Trainer.create(memory_store(), model, table=cut_table(model, 40, 2), pack_bytes=1 << 20)
    await trainer.steps(2, 30)
    await trainer.step(30, anchor=True)
    await trainer.step(30)
    return await contents(trainer.store)


_MADE: list[dict[str, bytes]] = []


@pytest.fixture
async def stream(tmp_path: Path) -> Path:
    """The stream in a folder of its own."""
    if not _MADE:
        _MADE.append(await make_stream())
    for key, data in _MADE[0].items():
        path = tmp_path / "stream" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "stream"


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", sorted(path.name for path in STREAMS.iterdir() if path.is_dir()))
async def test_every_object_of_the_vectors_is_sound(name: str) -> None:
    for path in files(STREAMS / name):
        key = str(path.relative_to(STREAMS / name))
        found = await looked_at(path, Wanted(check=True, entropy=key.endswith(".pack"), limit=3))
        assert found.problems == [], (key, found.problems)
        assert (found.key, found.kind) == (key, kind_of(key))


async def test_every_object_is_sound_also_by_url(stream: Path) -> None:
    store = memory_store()
    for path in files(stream):
        key = str(path.relative_to(stream))
        await store.put(key, path.read_bytes())
    for path in files(stream):
        key = str(path.relative_to(stream))
        here, there = await looked_at(path), await looked_at(f"{store.url}/{key}")
        assert here.problems == there.problems == []
        assert {**there.as_json(), "object": ""} == {**here.as_json(), "object": ""}
        as_file = await looked_at(path.as_uri())
        assert as_file.as_json() == here.as_json()


async def test_objects_under_the_names_of_others_are_found(stream: Path) -> None:
    by_kind: dict[str, list[Path]] = {}
    for path in files(stream):
        by_kind.setdefault(kind_of(str(path.relative_to(stream))), []).append(path)
    for kind in ("record", "pack", "inventory"):
        one, other = by_kind[kind][:2]
        kept = one.read_bytes()
        one.write_bytes(other.read_bytes())
        assert (await looked_at(one, Wanted(check=True))).problems, kind
        one.write_bytes(kept)


async def test_random_bytes_under_any_name_are_survived(stream: Path) -> None:
    draw = np.random.default_rng(9)
    for path in files(stream)[::3]:
        for size in (0, 3, 8, 64, 200, 5000):
            path.write_bytes(draw.bytes(size))
            wanted = Wanted(check=True, entropy=path.suffix == ".pack")
            assert (await looked_at(path, wanted)).problems, (path, size)


async def test_a_newer_format_is_no_corruption(stream: Path) -> None:
    record = stream / "log" / f"{0:020d}.json"
    fields = json.loads(record.read_bytes())
    record.write_bytes(canonical_bytes(seal({**fields, "format": 2})))
    (problem,) = (await looked_at(record)).problems
    assert (type(problem), problem.code, problem.rule) == (UnsupportedError, "newer_format", "DS012")


async def test_copies_without_their_place_are_known_by_their_bytes(stream: Path, tmp_path: Path) -> None:
    for path in files(stream):
        kind = kind_of(str(path.relative_to(stream)))
        copy = tmp_path / "a copy"
        copy.write_bytes(path.read_bytes())
        found = await looked_at(copy)
        assert found.key is None
        assert found.problems == []
        if kind == "carried file":
            assert found.kind == "unknown"
        elif kind != "chunk sums":
            assert found.kind == kind, path


async def test_what_is_no_object(tmp_path: Path) -> None:
    for content in (b"", b"hello", b"\x89PNG" * 30, b'{"a": 1}', bytes(100)):
        other = tmp_path / "other"
        other.write_bytes(content)
        found = await looked_at(other)
        assert (found.kind, found.problems) == ("unknown", [])
        assert found.facts["first_bytes"] == content[:64].hex()
    with pytest.raises(NotFoundError):
        await looked_at(tmp_path / "absent")
    with pytest.raises(InputError, match="folder"):
        await looked_at(tmp_path)
    with pytest.raises(NotFoundError):
        await looked_at(f"memory://none/{'log/' + '0' * 20}.json")
    with pytest.raises(InputError):
        await looked_at("s3://bucket")


async def test_damage_around_an_object_is_a_note(stream: Path) -> None:
    (pack, *_) = sorted(stream.glob("packs/*/*"))
    table = next(stream.glob("tables/*"))
    table.unlink()
    found = await looked_at(pack)
    assert found.problems == []
    assert any("table" in note for note in found.notes)
    assert "pattern" not in found.facts["rows"][0]
    for record in stream.glob("log/*"):
        record.write_bytes(b"{}")
    found = await looked_at(pack)
    assert found.problems == []
    assert any("log" in note for note in found.notes)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (f"a/b/log/{'0' * 20}.json", ("a/b", f"log/{'0' * 20}.json")),
        (f"log/{'0' * 20}.json", ("", f"log/{'0' * 20}.json")),
        (f"/files/{'a' * 64}", ("", f"files/{'a' * 64}")),
        (
            f"r/anchors/{'1' * 20}/{'b' * 32}/array-00000/c/0/1",
            ("r", f"anchors/{'1' * 20}/{'b' * 32}/array-00000/c/0/1"),
        ),
        (f"r/log/{'0' * 19}.json", None),
        ("r/packs/1/x.pack", None),
        (f"r/xlog/{'0' * 20}.json", None),
    ],
)
def test_keys_at_the_end_of_places(place: str, expected: Any) -> None:
    assert split_place(place) == expected


@pytest.mark.parametrize(
    ("around", "kind"),
    [
        ((b'{"a":[', b"[]]}"), "unknown"),
        ((b'{"format":1,"kind":"nothing","objects":[', b'[]],"sha256":""}'), "JSON object"),
        ((b'{"arrays":[', b'[]],"format":1,"kind":"attempt"}'), "attempt"),
    ],
)
async def test_large_json_is_not_taken_apart(tmp_path: Path, around: tuple[bytes, bytes], kind: str) -> None:
    """8 MiB of empty lists would be 200 MiB of them."""
    bomb = tmp_path / "bomb"
    bomb.write_bytes((b"[]," * ((8 << 20) // 3)).join(around))
    tracemalloc.start()
    found = await looked_at(bomb)
    lines = list(inspection_lines(found, Wanted()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.kind == kind
    assert all(len(line) < 1000 for line in lines)
    assert peak < 40 << 20


async def test_the_kind_of_an_object_too_large_to_be_shown(stream: Path, tmp_path: Path) -> None:
    (table,) = stream.glob("tables/*")
    copy = tmp_path / "copy"
    copy.write_bytes(table.read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_objects, "_SHOWN_PARTS", 10)
        for path in (table, copy):
            found = await looked_at(path)
            assert (found.kind, found.problems, found.facts["fields"]) == ("table", [], None)
            assert found.facts["summary"]["tensors"] > 0
            assert any("too many" in note for note in found.notes)


def shards(stream: Path) -> list[Path]:
    return [path for path in files(stream) if kind_of(str(path.relative_to(stream))) == "shard"]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(bytes(data))


async def test_a_shard_alone_is_checked_by_its_own_checksums(stream: Path, tmp_path: Path) -> None:
    copy = tmp_path / "a copy"
    for path in shards(stream):
        copy.write_bytes(path.read_bytes())
        found = await looked_at(copy, Wanted(check=True))
        assert (found.kind, found.problems) == ("shard", [])
        assert found.facts["sound_chunks"] == found.facts["chunks"] > 0
        assert {"hash,", "sums"} <= {word for what in found.as_json()["not_checked"] for word in what.split()}
        assert any(line.startswith("  not checked: ") for line in inspection_lines(found, Wanted()))
        flip(copy, 1)
        found = await looked_at(copy, Wanted(check=True))
        assert [(one.code, one.rule, one.offset) for one in found.problems] == [("bad_anchor", "DS073", 0)]
        assert (await looked_at(copy)).problems == []  # chunks are not read unless they are asked for
    found = await looked_at(copy, Wanted(chunk=0))
    assert any("chunk 0" in what for what in found.not_checked)


async def test_an_index_that_leads_out_of_a_shard_alone(tmp_path: Path) -> None:
    copy = tmp_path / "a copy"
    for entries, count in (
        ([(0, 20), (8, 20)], 1),
        ([(0, 1 << 63)], 1),
        ([(0, 4)], 1),
        ([(0, 20), (20, 21)], 1),
    ):
        index = np.array(entries, "<u8").tobytes()
        body = bytes(40) + index
        copy.write_bytes(body + google_crc32c.value(index).to_bytes(4, "little"))
        found = await looked_at(copy)
        assert [one.rule for one in found.problems] == ["DS071"] * count, entries


async def test_a_damaged_newest_record_hides_no_damage_of_a_shard(stream: Path) -> None:
    first = next(path for path in shards(stream) if "0" * 20 in path.parts)
    flip(max(stream.glob("log/*")), 100)
    found = await looked_at(first, Wanted(check=True))
    assert (found.problems, found.not_checked, found.facts["named_by"]["version"]) == ([], [], 0)
    assert any("log" in note for note in found.notes)
    flip(first, 1)
    (problem,) = (await looked_at(first, Wanted(check=True))).problems
    assert problem.rule == "DS073"
    for record in stream.glob("log/*"):
        flip(record, 100)
    found = await looked_at(first, Wanted(check=True))
    assert [one.rule for one in found.problems] == ["DS073"]
    assert found.not_checked


@pytest.mark.parametrize("vector", [*LAYOUTS["ok"], *LAYOUTS["err"]], ids=lambda vector: vector["name"])
async def test_layouts_are_checked(tmp_path: Path, vector: dict[str, Any]) -> None:
    copy = tmp_path / "layout.json"
    copy.write_bytes(vector["text"].encode("latin-1"))
    found = await looked_at(copy)
    assert found.kind == "layout"
    expected = [(vector["code"], vector["check"])] if "code" in vector else []
    assert [(one.code, one.rule) for one in found.problems] == expected


async def test_an_attestation_is_known(tmp_path: Path) -> None:
    made = Attestation.seal_new(
        **{"stream": "1" * 32, "table": "2" * 64, "version": 7, "record": "3" * 64, "boxes": None},
        **{"digests": ("4" * 16,), "astray": (), "nonce": "5" * 32, "time": 1_700_000_000_000, "label": "x"},
    )
    copy = tmp_path / "rank0.json"
    copy.write_bytes(made.to_bytes())
    found = await looked_at(copy)
    assert (found.kind, found.problems) == ("attestation", [])
    assert any("2023-11-14 22:13:20 UTC" in line for line in inspection_lines(found, Wanted()))
    copy.write_bytes(made.to_bytes().replace(b'"version":7', b'"version":8'))
    assert [one.code for one in (await looked_at(copy)).problems] == ["bad_hash"]


async def test_a_record_of_another_epoch(stream: Path) -> None:
    record = max(stream.glob("log/*"))
    fields = json.loads(record.read_bytes())
    record.write_bytes(canonical_bytes(seal({**fields, "epoch": fields["epoch"] + 1})))
    (problem,) = (await looked_at(record)).problems
    assert (problem.code, problem.rule) == ("bad_chain", "DS053")


async def test_what_cannot_be_asked_of_an_object_is_refused(stream: Path) -> None:
    record, (table,) = max(stream.glob("log/*")), stream.glob("tables/*")
    for path, wanted, option in (
        (record, Wanted(rows=(0,)), "--row"),
        (table, Wanted(array="0"), "--array"),
        (shards(stream)[0], Wanted(entropy=True), "--entropy"),
        (record, Wanted(chunk=1), "--chunk"),
    ):
        with pytest.raises(UsageError, match=option):
            await looked_at(path, wanted)


async def test_packs_and_objects_are_tables_up_to_the_limit(stream: Path) -> None:
    record, inventory = max(stream.glob("log/*")), next(stream.glob("anchors/*/*/inventory.json"))
    lines = list(inspection_lines(await looked_at(record), Wanted()))
    assert "  packs: 1" in lines
    assert not any("[{" in line for line in lines)
    entries = json.loads(inventory.read_bytes())["objects"]
    lines = list(inspection_lines(await looked_at(inventory), Wanted(limit=2)))
    assert [any(one["key"] in line for line in lines) for one in entries[:3]] == [True, True, False]
    assert f"    … {len(entries) - 2:,} more: --limit" in lines


async def test_messages_name_the_object_once_and_advise_no_reader(stream: Path) -> None:
    path = shards(stream)[0]
    flip(path, 1)
    found = await looked_at(path, Wanted(check=True))
    (problem,) = found.as_json()["problems"]
    assert problem["message"].count(found.where) == 1
    lines = list(inspection_lines(found, Wanted()))
    assert "take another version" not in problem["message"] + "".join(lines)
    assert sum(line.count(found.where) for line in lines) == 1
    record = max(stream.glob("log/*"))
    record.write_bytes(canonical_bytes({"a": 1}))
    assert "None" not in str((await looked_at(record)).problems[0])
