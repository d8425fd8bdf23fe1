"""Every vector below spec/vectors, decoded by the decoder of the specification."""

from __future__ import annotations

import ast
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spec import decoder

SOURCE = Path(decoder.__file__)
VECTORS = SOURCE.parent / "vectors"
STREAMS = VECTORS / "streams"
FILES = {
    "digest.json": [""],
    "names.json": [""],
    "pack.json": ["ok", "err"],
    "patch.json": ["ok", "err"],
    "record.json": ["ok", "err"],
    "table.json": ["ok", "err"],
}
Vector = dict[str, Any]


def vectors(file: str, group: str = "") -> list[Vector]:
    """The vectors of one group of a file; none where the file is missing, which a test of its own reports."""
    path = VECTORS / file
    if not path.is_file():
        return []
    content = json.loads(path.read_text(encoding="utf-8"))
    return list(content[group] if group else content)


def cases(file: str, group: str = "") -> list[Any]:
    """The vectors as parameters of a test."""
    found = vectors(file, group)
    return [pytest.param(one, id=f"{at}-{one.get('name', '')}") for at, one in enumerate(found)]


def bits_of(text: str, dtype: str) -> decoder.U64:
    """Elements from hexadecimal little-endian bytes."""
    width = decoder.WIDTHS[dtype] // 8
    return np.frombuffer(bytes.fromhex(text), dtype=f"<u{width}").astype(np.uint64)


def refusal(decode: Callable[[], object]) -> str:
    """The code with which something is refused."""
    with pytest.raises(decoder.SpecError) as caught:
        decode()
    return caught.value.code


# ---- the vectors are there, and the decoder stands alone ---------------------------------------------------


@pytest.mark.parametrize(("file", "group"), [(file, group) for file in FILES for group in FILES[file]])
def test_no_group_of_vectors_is_empty(file: str, group: str) -> None:
    assert vectors(file, group)


def test_every_vector_file_is_decoded() -> None:
    # No reader looks at votes, and no stream holds a layout.
    assert {path.name for path in VECTORS.glob("*.json")} == {*FILES, "votes.json", "layout.json"}
    for file, groups in FILES.items():
        content = json.loads((VECTORS / file).read_text(encoding="utf-8"))
        assert isinstance(content, list) if groups == [""] else sorted(content) == sorted(groups)


def test_every_stream_has_its_expectation() -> None:
    directories = {path.name for path in STREAMS.iterdir() if path.is_dir()}
    assert directories
    assert directories == {path.name.removesuffix(".json") for path in STREAMS.glob("*.json")}


def test_the_decoder_imports_nothing_but_the_standard_library_and_numpy() -> None:
    modules: set[str] = set()
    for node in ast.walk(ast.parse(SOURCE.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules.update(alias.name.partition(".")[0] for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            modules.add("." * node.level + (node.module or "").partition(".")[0])
        if isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            assert name not in ("__import__", "import_module", "exec", "eval")
    assert "numpy" in modules
    assert modules - {"numpy"} <= sys.stdlib_module_names


# ---- the single files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", cases("names.json"))
def test_names(vector: Vector) -> None:
    pattern, indexes = decoder.split_name(vector["name"])
    assert (pattern, list(indexes)) == (vector["pattern"], vector["index"])
    assert decoder.join_name(pattern, indexes) == vector["name"]


@pytest.mark.parametrize("vector", cases("table.json", "ok"))
def test_tables(vector: Vector) -> None:
    arrays = decoder.decode_table(vector["text"].encode("utf-8")).arrays
    named = [(name, a, m) for a, array in enumerate(arrays) for m, name in enumerate(array.names())]
    grids = [(a, int(np.prod(array.grid()))) for a, array in enumerate(arrays)]
    slabs = [(a, chunk, arrays[a].slab_of(chunk)) for a, chunks in grids for chunk in range(chunks)]
    assert sorted(named) == sorted(map(tuple, vector["tensors"]))
    assert grids == list(map(tuple, vector["chunks"]))
    assert sorted(slabs) == sorted(map(tuple, vector["slabs"]))


@pytest.mark.parametrize("vector", cases("table.json", "err"))
def test_bad_tables(vector: Vector) -> None:
    assert refusal(lambda: decoder.decode_table(vector["text"].encode("utf-8"))) == vector["code"]


@pytest.mark.parametrize("vector", cases("digest.json"))
def test_digests(vector: Vector) -> None:
    bits = bits_of(vector["bits"], vector["dtype"])
    assert f"{decoder.digest(vector['tensor'], bits, vector['first']):016x}" == vector["digest"]


def patched(vector: Vector, base: str) -> tuple[decoder.U64, int]:
    """The bits after a vector's patch is applied to a base, and how many elements it writes."""
    dtype, patch = vector["dtype"], bytes.fromhex(vector["patch"])
    runs = decoder.decode_patch(patch, dtype, vector["elements"], vector["encoding"])
    result = decoder.apply_patch(runs, dtype, bits_of(base, dtype))
    return result, sum(len(run.positions) for run in runs)


@pytest.mark.parametrize("vector", cases("patch.json", "ok"))
def test_patches(vector: Vector) -> None:
    expected = bits_of(vector["result"], vector["dtype"]).tolist()
    assert len(expected) == vector["elements"]
    for base in (vector["base"], vector["result"]):  # the second: applied twice is applied once
        result, count = patched(vector, base)
        assert result.tolist() == expected
        assert count == vector["count"]


@pytest.mark.parametrize("vector", cases("patch.json", "err"))
def test_bad_patches(vector: Vector) -> None:
    assert refusal(lambda: patched(vector, vector["base"])) == vector["code"]


def pack_of(vector: Vector) -> decoder.Pack:
    """A vector's pack, all of whose patches have been decoded."""
    table = decoder.decode_table(vector["table"].encode("utf-8"))
    pack = decoder.decode_pack(bytes.fromhex(vector["pack"]), table)
    for row in pack.rows:
        assert pack.runs(row, table.arrays[row.array])
    return pack


@pytest.mark.parametrize("vector", cases("pack.json", "ok"))
def test_packs(vector: Vector) -> None:
    pack = pack_of(vector)
    rows = [
        [row.array, row.chunk, row.length, row.elements, row.encoding, f"{row.difference:016x}", row.offset]
        for row in pack.rows
    ]
    assert rows == vector["rows"]
    assert hashlib.sha256(pack.raw).hexdigest() == vector["sha256"]


@pytest.mark.parametrize("vector", cases("pack.json", "err"))
def test_bad_packs(vector: Vector) -> None:
    assert refusal(lambda: pack_of(vector)) == vector["code"]


@pytest.mark.parametrize("vector", cases("record.json", "ok"))
def test_records(vector: Vector) -> None:
    record = decoder.decode_record(vector["text"].encode("latin-1"), vector["slot"])
    assert (record["kind"], record["slot"]) == (vector["kind"], vector["slot"])


@pytest.mark.parametrize("vector", cases("record.json", "err"))
def test_bad_records(vector: Vector) -> None:
    raw = vector["text"].encode("latin-1")
    assert refusal(lambda: decoder.decode_record(raw, vector["slot"])) == vector["code"]


# ---- whole streams -----------------------------------------------------------------------------------------

EXPECTED = {path.name.removesuffix(".json"): path for path in sorted(STREAMS.glob("*.json"))}


@pytest.mark.parametrize("name", EXPECTED)
def test_streams(name: str) -> None:
    versions = json.loads(EXPECTED[name].read_text(encoding="utf-8"))["versions"]
    assert sorted(decoder.read_log(STREAMS / name)) == sorted(map(int, versions))
    for version, expected in versions.items():
        manifest, tensors = decoder.read_version(STREAMS / name, int(version))
        assert manifest["digest"] == expected["digest"]
        assert sorted(tensors) == sorted(expected["tensors"])
        for tensor, (array, bits) in tensors.items():
            one = expected["tensors"][tensor]
            assert (array.dtype, list(bits.shape)) == (one["dtype"], one["shape"])
            assert decoder.stored(array, bits).hex() == one["bits"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The decoder as a command."""
    return subprocess.run(
        [sys.executable, str(SOURCE), *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


@pytest.mark.parametrize("name", EXPECTED)
def test_the_command_prints_a_version(name: str) -> None:
    versions = json.loads(EXPECTED[name].read_text(encoding="utf-8"))["versions"]
    tip, first = max(map(int, versions)), min(map(int, versions))
    for version, arguments in ((tip, []), (first, [str(first)])):
        done = run(str(STREAMS / name), *arguments)
        assert done.returncode == 0
        expected = versions[str(version)]
        hashes = {
            tensor: hashlib.sha256(bytes.fromhex(one["bits"])).hexdigest()
            for tensor, one in expected["tensors"].items()
        }
        shown = {"version": version, "digest": expected["digest"], "tensors": hashes}
        assert json.loads(done.stdout) == shown


def test_the_command_refuses(tmp_path: Path) -> None:
    done = run(str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("no_stream: ")
    assert run().returncode == 2


# ---- damaged streams ---------------------------------------------------------------------------------------


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    """A copy of the first stream, to be damaged."""
    return Path(shutil.copytree(STREAMS / next(iter(EXPECTED)), tmp_path / "stream"))


def flip(path: Path, at: int) -> None:
    """Change one bit."""
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


def extend(path: Path) -> None:
    """Append a byte."""
    path.write_bytes(path.read_bytes() + b"\0")


def newest(stream: Path, pattern: str) -> Path:
    """The last object, by key, of those that match and that the tip of the stream needs."""
    return sorted(stream.glob(pattern))[-1]


def replace(path: Path, old: str, new: str) -> None:
    """Replace text, once."""
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


def fill(path: Path) -> None:
    """More bytes than a record may have."""
    path.write_bytes(bytes(2**22 + 1))


DAMAGES: dict[str, tuple[str, str, Callable[[Path], None]]] = {
    "birth lost": ("no_stream", "log/00000000000000000000.json", Path.unlink),
    "record changed": ("bad_hash", "log/*1.json", lambda path: replace(path, '"time":1', '"time":2')),
    "record with a newline": ("bad_json", "log/*1.json", extend),
    "record too large": (
        "too_large",
        "log/*1.json",
        fill,
    ),
    "table lost": ("lost_object", "tables/*", Path.unlink),
    "table with a newline": ("bad_json", "tables/*", extend),
    "pack lost": ("lost_object", "packs/*/*", Path.unlink),
    "pack longer": ("bad_length", "packs/*/*", extend),
    "pack header changed": ("bad_hash", "packs/*/*", lambda path: flip(path, 0)),
    "patch changed": ("bad_hash", "packs/*/*", lambda path: flip(path, -1)),
    "inventory lost": ("lost_object", "anchors/*/*/inventory.json", Path.unlink),
    "inventory longer": ("bad_length", "anchors/*/*/inventory.json", extend),
    "group lost": ("lost_object", "anchors/*/*/zarr.json", Path.unlink),
    "shard lost": ("lost_object", "anchors/*/*/array-00000/c/*/*/*", Path.unlink),
    "shard longer": ("bad_length", "anchors/*/*/array-00000/c/*/*/*", extend),
    "shard changed": ("bad_hash", "anchors/*/*/array-00000/c/*/*/*", lambda path: flip(path, 0)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_streams(stream: Path, damage: str) -> None:
    code, pattern, harm = DAMAGES[damage]
    harm(newest(stream, pattern))
    assert refusal(lambda: decoder.read_version(stream)) == code


def reseal(stream: Path, slot: int, members: dict[str, object]) -> None:
    """Write a record anew with other members, and all records after it with their new parents."""
    path, parent = stream / f"log/{slot:020}.json", None
    while path.exists():
        record = json.loads(path.read_text(encoding="utf-8")) | members
        record |= {} if parent is None else {"parent": parent}
        del record["sha256"]
        parent = hashlib.sha256(decoder.canonical(record)).hexdigest()
        path.write_bytes(decoder.canonical(record | {"sha256": parent}))
        members, slot = {}, slot + 1
        path = stream / f"log/{slot:020}.json"


def last(stream: Path, kind: str) -> dict[str, Any]:
    """The last record of a kind."""
    records = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(stream.glob("log/*"))]
    return dict([record for record in records if record["kind"] == kind][-1])


FORGERIES: dict[str, tuple[str, str, dict[str, object]]] = {
    "parent": ("bad_chain", "delta", {"parent": "0" * 64}),
    "epoch": ("bad_chain", "delta", {"epoch": 99}),
    "new epoch": ("bad_chain", "epoch", {"epoch": 99}),
    "resumes what is not there": ("bad_chain", "epoch", {"resumes": 99}),
    "version below the one before": ("bad_chain", "anchor", {"version": 0}),
    "digest of a delta": ("bad_digest", "delta", {"digest": "0" * 16}),
    "digest of an anchor": ("bad_digest", "anchor", {"digest": "0" * 16}),
    "another table": ("bad_chain", "delta", {"table": "0" * 64}),
    "unknown kind": ("unknown_kind", "delta", {"kind": "gamma"}),
    "second birth": ("bad_json", "delta", {"kind": "birth"}),
    "newer format": ("newer_format", "delta", {"format": 2}),
    "packs left out": ("bad_digest", "delta", {"packs": []}),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_records(stream: Path, forgery: str) -> None:
    code, kind, members = FORGERIES[forgery]
    reseal(stream, last(stream, kind)["slot"], members)
    assert refusal(lambda: decoder.read_version(stream)) == code


@pytest.mark.parametrize("member", ["rows", "count", "slabs", "index_sha256", "bytes"])
def test_forged_pack_entries(stream: Path, member: str) -> None:
    record = last(stream, "delta")
    entry = record["packs"][0]
    changed = {
        "rows": entry["rows"] + 1,
        "count": entry["count"] + 1,
        "slabs": [entry["slabs"][0], entry["slabs"][1] + 1],
        "index_sha256": "0" * 64,
        "bytes": entry["bytes"] + 1,
    }
    reseal(stream, record["slot"], {"packs": [entry | {member: changed[member]}]})
    code = {"index_sha256": "bad_hash", "bytes": "bad_length"}.get(member, "bad_index")
    assert refusal(lambda: decoder.read_version(stream)) == code


def test_a_pack_twice_patches_an_element_twice(stream: Path) -> None:
    record = last(stream, "delta")
    reseal(stream, record["slot"], {"packs": record["packs"] * 2})
    assert refusal(lambda: decoder.read_version(stream)) == "bad_patch"


def test_an_ignorable_record_is_skipped(stream: Path) -> None:
    expected = decoder.read_version(stream)
    slot = expected[0]["slot"] + 1
    known = {key: item for key, item in expected[0].items() if key in decoder.RECORD}
    label = known | {"kind": "label", "text": "of a later release", "ignorable": True, "slot": slot}
    (stream / f"log/{slot:020}.json").write_bytes(decoder.canonical(label))
    reseal(stream, slot, {"parent": expected[0]["sha256"]})
    assert decoder.read_version(stream)[0] == expected[0]
    reseal(stream, slot, {"parent": "0" * 64})
    assert refusal(lambda: decoder.read_version(stream)) == "bad_chain"


def test_a_birth_stands_in_slot_0_only(stream: Path) -> None:
    birth, epoch = last(stream, "birth"), last(stream, "epoch")
    path = stream / f"log/{1:020}.json"
    path.write_bytes(decoder.canonical(birth | {"slot": 1}))
    reseal(stream, 1, {"parent": birth["sha256"]})
    assert refusal(lambda: decoder.read_version(stream)) == "bad_chain"
    path = stream / f"log/{0:020}.json"
    path.write_bytes(decoder.canonical(epoch | {"slot": 0}))
    reseal(stream, 0, {"parent": None})
    assert refusal(lambda: decoder.read_version(stream)) == "bad_chain"


def test_a_version_that_is_not_there(stream: Path) -> None:
    assert refusal(lambda: decoder.read_version(stream, 10**6)) == "no_version"


def test_crc32c_of_its_check_string() -> None:
    assert decoder.checked(b"123456789" + (0xE3069283).to_bytes(4, "little")) == b"123456789"
    assert refusal(lambda: decoder.checked(b"123456789" + bytes(4))) == "bad_anchor"
