"""The product reads every test vector in spec/vectors as the vector says."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deltastore.errors import CorruptError, UnsupportedError
from deltastore.format.digest import digest_text
from deltastore.format.dtypes import dtype_named
from deltastore.format.names import join_name, split_name
from deltastore.format.pack import PackIndex
from deltastore.format.patch import decode_patch
from deltastore.format.records import parse_record
from deltastore.format.sealed import Sealed
from deltastore.format.seeds import tensor_seed
from deltastore.format.table import TensorTable
from deltastore.format.votes import Attempt, Call, Claim, Ending, Join, Vote
from deltastore.kernels.cpu import digest_range
from deltastore.kernels.reference import digest as reference
from deltastore.stores.local import LocalStore
from deltastore.stream import AsyncStream

VECTORS = Path(__file__).resolve().parents[2] / "spec" / "vectors"
STREAMS = sorted(path.stem for path in (VECTORS / "streams").glob("*.json"))
Vector = dict[str, Any]


def rows(file: str, part: str | None = None) -> list[Vector]:
    """The vectors of a file, or of its part ``ok`` or ``err``."""
    read: Any = json.loads((VECTORS / file).read_text(encoding="ascii"))
    found: list[Vector] = read if part is None else read[part]
    assert found
    return found


def every(file: str, part: str | None = None) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", rows(file, part), ids=lambda vector: str(vector.get("name")))


def stored(text: str) -> bytes:
    return text.encode("latin-1")


@every("names.json")
def test_names(vector: Vector) -> None:
    pattern, index = split_name(vector["name"])
    assert [pattern, list(index)] == [vector["pattern"], vector["index"]]
    assert join_name(pattern, index) == vector["name"]


@every("digest.json")
def test_digests(vector: Vector) -> None:
    bits = np.frombuffer(bytes.fromhex(vector["bits"]), dtype_named(vector["dtype"]).storage)
    for digest in (digest_range, reference.digest_range):
        found = digest(bits, vector["first"], tensor_seed(vector["tensor"]))
        assert digest_text(found) == vector["digest"]


KINDS: dict[str, type[Sealed]] = {
    "call": Call,
    "join": Join,
    "claim": Claim,
    "attempt": Attempt,
    "vote": Vote,
    "ending": Ending,
}


@every("votes.json", "ok")
def test_good_words_between_writers(vector: Vector) -> None:
    value = KINDS[vector["kind"]].from_bytes(stored(vector["text"]), "here")
    assert value.to_bytes() == stored(vector["text"])


@pytest.mark.spec("DS010", "DS011", "DS012", "DS013")
@every("votes.json", "err")
def test_bad_words_between_writers(vector: Vector) -> None:
    with pytest.raises((CorruptError, UnsupportedError)) as caught:
        KINDS[vector["kind"]].from_bytes(stored(vector["text"]), "here")
    assert caught.value.code == vector["code"]


@pytest.mark.spec("DS020", "DS021", "DS022", "DS025")
@every("table.json", "ok")
def test_good_tables(vector: Vector) -> None:
    table = TensorTable.from_bytes(stored(vector["text"]), "table")
    assert sorted([name, *place] for name, place in table.places.items()) == vector["tensors"]
    assert [[number, len(one.grid)] for number, one in enumerate(table.arrays)] == vector["chunks"]
    assert sorted([at, chunk, slab] for slab, at, chunk in table.chunk_order().tolist()) == vector["slabs"]
    assert table.to_bytes() == stored(vector["text"])


@pytest.mark.spec("DS010", "DS011", "DS012", "DS013", "DS020", "DS021", "DS022", "DS023", "DS024", "DS025")
@every("table.json", "err")
def test_bad_tables(vector: Vector) -> None:
    with pytest.raises((CorruptError, UnsupportedError)) as caught:
        TensorTable.from_bytes(stored(vector["text"]), "table")
    assert caught.value.code == vector["code"]


@every("patch.json", "ok")
def test_good_patches(vector: Vector) -> None:
    dtype = dtype_named(vector["dtype"])
    data = bytes.fromhex(vector["patch"])
    patch = decode_patch(memoryview(data), vector["encoding"], dtype, vector["elements"], "patch")
    assert len(patch.positions) == vector["count"]
    bits = np.frombuffer(bytes.fromhex(vector["base"]), dtype.storage).copy()
    for _ in range(2):
        patch.apply(bits, "patch")
        assert bits.tobytes().hex() == vector["result"]


@pytest.mark.spec("DS030", "DS031", "DS032", "DS033", "DS034", "DS036")
@every("patch.json", "err")
def test_bad_patches(vector: Vector) -> None:
    dtype = dtype_named(vector["dtype"])
    data = memoryview(bytes.fromhex(vector["patch"]))
    bits = np.frombuffer(bytes.fromhex(vector["base"]), dtype.storage).copy()
    with pytest.raises(CorruptError) as caught:
        decode_patch(data, vector["encoding"], dtype, vector["elements"], "patch").apply(bits, "patch")
    assert caught.value.code == vector["code"]
    assert bits.tobytes().hex() == vector["base"]


@every("pack.json", "ok")
def test_good_packs(vector: Vector) -> None:
    table = TensorTable.from_bytes(stored(vector["table"]), "table")
    data = bytes.fromhex(vector["pack"])
    index = PackIndex.parse(data, table, "pack")
    found = []
    for _, row, start, end in index.patches():
        index.read_patch(row, memoryview(data)[start:end], table)
        numbers = [int(row[member]) for member in ("array", "chunk", "length", "count", "encoding")]
        found.append([*numbers, digest_text(int(row["difference"])), start])
    assert found == vector["rows"]
    assert hashlib.sha256(data).hexdigest() == vector["sha256"]


@pytest.mark.spec("DS040", "DS041", "DS042", "DS043")
@every("pack.json", "err")
def test_bad_packs(vector: Vector) -> None:
    table = TensorTable.from_bytes(stored(vector["table"]), "table")
    with pytest.raises((CorruptError, UnsupportedError)) as caught:
        PackIndex.parse(bytes.fromhex(vector["pack"]), table, "pack")
    assert caught.value.code == vector["code"]


@every("record.json", "ok")
def test_good_records(vector: Vector) -> None:
    assert parse_record(stored(vector["text"]), vector["slot"]).kind == vector["kind"]


@pytest.mark.spec("DS010", "DS011", "DS012", "DS013", "DS051", "DS052", "DS060", "DS100")
@every("record.json", "err")
def test_bad_records(vector: Vector) -> None:
    with pytest.raises((CorruptError, UnsupportedError)) as caught:
        parse_record(stored(vector["text"]), vector["slot"])
    assert caught.value.code == vector["code"]


@pytest.mark.parametrize("name", STREAMS)
async def test_every_version_of_an_old_stream_reads_to_its_bits(name: str) -> None:
    facts: Any = json.loads((VECTORS / "streams" / f"{name}.json").read_text(encoding="ascii"))
    async with await AsyncStream.open(LocalStore(VECTORS / "streams" / name)) as stream:
        for version, expected in facts["versions"].items():
            manifest = await stream.manifest(int(version))
            assert manifest.digest == expected["digest"]
            weights = await stream.weights(int(version))
            read = {}
            for number, array in enumerate(weights.table.arrays):
                whole = np.zeros(array.grid.extent, dtype=array.element.storage)
                for chunk, box in array.grid.boxes():
                    whole[box.slices] = await weights.read(number, chunk)
                for tensor, bits in zip(array.names, whole, strict=True):
                    dtype, shape = array.dtype, list(array.shape)
                    read[tensor] = {"dtype": dtype, "shape": shape, "bits": bits.tobytes().hex()}
            assert read == expected["tensors"]


def test_there_is_a_stream_of_this_release() -> None:
    import deltastore

    assert f"v1-by-{deltastore.__version__}" in STREAMS
