"""What the vectors in spec/vectors show of the product beyond the answers that tests/spec compares."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deltastore.errors import CorruptError
from deltastore.format.attestation import Attestation
from deltastore.format.digest import digest_text
from deltastore.format.dtypes import dtype_named
from deltastore.format.names import join_name, split_name
from deltastore.format.patch import decode_patch
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
    "attestation": Attestation,
}


@every("votes.json", "ok")
def test_good_words_between_writers(vector: Vector) -> None:
    value = KINDS[vector["kind"]].from_bytes(stored(vector["text"]), "here")
    assert value.to_bytes() == stored(vector["text"])


@every("table.json", "ok")
def test_good_tables(vector: Vector) -> None:
    table = TensorTable.from_bytes(stored(vector["text"]), "table")
    assert table.to_bytes() == stored(vector["text"])


@pytest.mark.spec("DS030", "DS031", "DS032", "DS033", "DS034", "DS036")
@every("patch.json", "err")
def test_bad_patches_change_nothing(vector: Vector) -> None:
    dtype = dtype_named(vector["dtype"])
    data = memoryview(bytes.fromhex(vector["patch"]))
    bits = np.frombuffer(bytes.fromhex(vector["base"]), dtype.storage).copy()
    with pytest.raises(CorruptError) as caught:
        decode_patch(data, vector["encoding"], dtype, vector["elements"], "patch").apply(bits, "patch")
    assert caught.value.code == vector["code"]
    assert bits.tobytes().hex() == vector["base"]


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
                    read[tensor] = hashlib.sha256(bits.tobytes()).hexdigest()
            assert read == {tensor: sha256_of(one) for tensor, one in expected["tensors"].items()}


def sha256_of(facts: Vector) -> str:
    """The hash of a tensor's bits, of which older files have the bits."""
    return str(facts.get("sha256") or hashlib.sha256(bytes.fromhex(facts["bits"])).hexdigest())


def test_there_is_a_stream_of_this_release() -> None:
    import deltastore

    assert f"v1-by-{deltastore.__version__}" in STREAMS
