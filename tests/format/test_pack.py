"""Packs: what a builder puts in comes out, and adds up."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deltastore.format.digest import MODULUS, Digester
from deltastore.format.pack import HEADER_BYTES, ROW, PackBuilder, PackIndex, index_bytes, pack_key
from deltastore.format.table import TensorTable
from deltastore.stores.base import check_key

from .corpus import seeds
from .packing import NONCE, changes_of, pack_of
from .tables import array, table, tables

SHARES = st.sampled_from([0.0, 0.3, 1.0])


@settings(max_examples=150)
@given(made=tables(), seed=seeds, share=SHARES, may_be_raw=st.booleans())
def test_what_goes_in_comes_out(made: TensorTable, seed: int, share: float, may_be_raw: bool) -> None:
    if not len(made.chunk_order()):
        return
    changed = changes_of(made, np.random.default_rng(seed), share)
    pack = pack_of(made, changed, may_be_raw=may_be_raw)
    assert pack.sha256 == hashlib.sha256(pack.data).hexdigest()
    front = pack.data[: index_bytes(pack.rows)]
    assert pack.index_sha256 == hashlib.sha256(front).hexdigest()
    index = PackIndex.parse(front, made, "pack")
    assert (index.version, index.nonce, len(index.rows)) == (7, NONCE, len(changed))
    assert index_bytes(pack.rows) + index.body_bytes == len(pack.data) == int(index.offsets[-1])
    digester, written = Digester(made), 0
    for (number, row, start, end), ((at, chunk), change) in zip(
        index.patches(), changed.items(), strict=True
    ):
        assert (int(row["array"]), int(row["chunk"])) == (at, chunk)
        patch = index.read_patch(row, memoryview(pack.data)[start:end], made)
        result = change.old.copy()
        patch.apply(result, "pack")
        assert result.tobytes() == change.new.tobytes()
        box = made.arrays[at].grid.box(chunk)
        old, new = (digester.chunk(at, box, bits.reshape(box.size)) for bits in (change.old, change.new))
        assert int(row["difference"]) == (new - old) % MODULUS
        written += int(row["count"])
        assert start == int(index.offsets[number])
    assert pack.count == written
    order = {(at, chunk): slab for slab, at, chunk in made.chunk_order().tolist()}
    slabs = [order[key] for key in changed]
    assert pack.slabs == (slabs[0], slabs[-1])


@given(made=tables(), seed=seeds)
def test_a_builder_knows_the_size_of_what_it_will_make(made: TensorTable, seed: int) -> None:
    if not len(made.chunk_order()):
        return
    changed = changes_of(made, np.random.default_rng(seed), 1.0)
    builder = PackBuilder(0, NONCE)
    assert (len(builder), builder.size) == (0, HEADER_BYTES)
    for (at, chunk), change in changed.items():
        builder.add(0, at, chunk, change.encode(may_be_raw=True), 0)
    assert len(builder) == len(changed)
    assert builder.size == len(builder.finish().data)


def test_the_layout_of_header_and_row() -> None:
    """Byte by byte as SPEC section 10 lists them."""
    made = table([array()])
    changed = changes_of(made, np.random.default_rng(1), 1.0)
    data = bytes(pack_of(made, changed).data)
    rows = int.from_bytes(data[12:16], "little")
    assert data[:8] == bytes.fromhex("93445350 41434B0A")
    assert (data[8:10], data[10:12], rows) == (b"\1\0", b"\0\0", 1)
    assert int.from_bytes(data[16:24], "little") == 7
    assert data[24:40] == NONCE
    assert int.from_bytes(data[40:48], "little") == len(data) - 64 - 44 * rows
    assert data[48:64] == bytes(16)
    row = data[64:108]
    numbers = [int.from_bytes(row[at : at + 4], "little") for at in (0, 4, 8, 12, 16)]
    patch = data[108:]
    assert numbers[:3] == [0, 0, len(patch)]
    assert numbers[4] in (0, 1)
    assert row[28:44] == hashlib.sha256(patch).digest()[:16]
    names = [(name, *ROW.fields[name][1:2]) for name in ROW.names or ()] if ROW.fields else []
    assert names == [
        ("array", 0),
        ("chunk", 4),
        ("length", 8),
        ("count", 12),
        ("encoding", 16),
        ("difference", 20),
        ("check", 28),
    ]


def test_keys_of_packs_sort_by_version() -> None:
    keys = [pack_key(version, "ab" * 32) for version in (0, 1, 9, 10, 2**53 - 1)]
    assert keys == sorted(keys)
    assert [check_key(key) for key in keys] == keys
    assert keys[3] == f"packs/00000000000000000010/{'ab' * 32}.pack"


@pytest.mark.parametrize("version", [0, 2**53 - 1])
def test_versions_of_any_size(version: int) -> None:
    made = table([array()])
    builder = PackBuilder(version, NONCE)
    for (at, chunk), change in changes_of(made, np.random.default_rng(1), 1.0).items():
        builder.add(0, at, chunk, change.encode(may_be_raw=True), MODULUS - 1)
    index = PackIndex.parse(builder.finish().data, made, "pack")
    assert index.version == version
    assert int(index.rows["difference"][0]) == MODULUS - 1
