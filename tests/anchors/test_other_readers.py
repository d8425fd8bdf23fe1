"""Anchors are plain Zarr v3: tensorstore and zarr-python read them, and AnchorWeights reads theirs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore
import zarr
from zarr.codecs import Crc32cCodec, ZstdCodec

from deltastore.anchors import AnchorWeights, bfloat16, write_anchor
from deltastore.errors import CorruptError
from deltastore.format.dtypes import DTYPES
from deltastore.format.inventory import Inventory, InventoryObject
from deltastore.format.records import AnchorRef
from deltastore.format.table import Array, TensorSpec, TensorTable
from deltastore.stores.local import LocalStore
from tests.anchors.models import HeldWeights, assert_same_bits, cut_table, hostile_weights, tensors_of

ATTEMPT = "ab" * 16
LIMIT = 16


@pytest.fixture(autouse=True)
def _known_to_zarr() -> None:
    bfloat16.register()


@pytest.fixture(params=sorted(DTYPES))
def weights(request: pytest.FixtureRequest) -> HeldWeights:
    return hostile_weights(LIMIT, [request.param])


def folder_of(local: LocalStore, version: int = 1) -> Path:
    return local.root / f"anchors/{version:020d}/{ATTEMPT}"


async def stacked(weights: HeldWeights, array: Array) -> np.ndarray[Any, Any]:
    tensors = await tensors_of(weights)
    return np.stack([tensors[name] for name in array.names])


def take_inventory(local: LocalStore) -> AnchorRef:
    """List what somebody else wrote as an inventory would, and return what names it."""
    folder = folder_of(local)
    objects = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        data = path.read_bytes()
        key = path.relative_to(folder).as_posix()
        objects.append(InventoryObject(key=key, bytes=len(data), sha256=hashlib.sha256(data).hexdigest()))
    inventory = Inventory.seal_new(objects=tuple(sorted(objects, key=lambda entry: entry.key)))
    (folder / "inventory.json").write_bytes(inventory.to_bytes())
    return AnchorRef(
        attempt=ATTEMPT,
        inventory_sha256=inventory.sha256,
        inventory_bytes=len(inventory.to_bytes()),
    )


def group_attributes(table: TensorTable) -> dict[str, Any]:
    return {"deltastore": {"format": 1, "table": table.sha256, "version": 1}}


def array_attributes(array: Array) -> dict[str, Any]:
    members = json.loads(array.model_dump_json())["members"]
    return {"deltastore": {"dtype": array.dtype, "pattern": array.pattern, "members": members}}


def zarr_type(array: Array) -> str:
    native = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64"}
    native |= {f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)}
    return native.get(array.dtype, f"uint{array.element.bits}")


def arrays_of(weights: HeldWeights) -> Iterator[tuple[str, Array]]:
    for number, array in enumerate(weights.table.arrays):
        yield f"array-{number:05d}", array


async def zarr_writes(
    local: LocalStore, weights: HeldWeights, *, empty_chunks: bool = True, codec: Any = None
) -> AnchorRef:
    """The anchor as zarr-python writes it, with two chunks per shard along every axis."""
    group = zarr.create_group(folder_of(local), attributes=group_attributes(weights.table))
    with zarr.config.set({"array.write_empty_chunks": empty_chunks}):
        for path, array in arrays_of(weights):
            target = group.create_array(
                path,
                shape=array.grid.extent,
                dtype=zarr_type(array),
                chunks=array.chunk,
                shards=tuple(2 * step for step in array.chunk),
                compressors=[codec or Crc32cCodec()],
                fill_value=0,
                attributes=array_attributes(array),
            )
            target[...] = (await stacked(weights, array)).view(target.dtype)
    return take_inventory(local)


async def test_tensorstore_reads_every_bit(local: LocalStore, weights: HeldWeights) -> None:
    await write_anchor(local, 1, weights, attempt=ATTEMPT)
    for path, array in arrays_of(weights):
        kvstore = {"driver": "file", "path": f"{folder_of(local) / path}/"}
        opened = await tensorstore.open({"driver": "zarr3", "kvstore": kvstore}, open=True)
        bits = (await opened.read()).view(array.element.storage)
        assert opened.dtype.name == zarr_type(array)
        assert opened.chunk_layout.read_chunk.shape == array.chunk
        assert bits.tobytes() == (await stacked(weights, array)).tobytes()


async def test_zarr_python_reads_every_bit(local: LocalStore, weights: HeldWeights) -> None:
    await write_anchor(local, 1, weights, attempt=ATTEMPT)
    group = zarr.open_group(folder_of(local), mode="r")
    assert group.attrs["deltastore"] == group_attributes(weights.table)["deltastore"]
    for path, array in arrays_of(weights):
        opened = group[path]
        assert isinstance(opened, zarr.Array)
        assert (opened.shape, opened.chunks) == (array.grid.extent, array.chunk)
        bits = np.asarray(opened[...]).view(array.element.storage)
        assert bits.tobytes() == (await stacked(weights, array)).tobytes()


async def test_every_bit_that_zarr_python_wrote_is_read(local: LocalStore, weights: HeldWeights) -> None:
    ref = await zarr_writes(local, weights)
    await assert_same_bits(await AnchorWeights.open(local, 1, ref, weights.table), weights)


async def test_every_bit_that_tensorstore_wrote_is_read(local: LocalStore, weights: HeldWeights) -> None:
    zarr.create_group(folder_of(local), attributes=group_attributes(weights.table))
    for path, array in arrays_of(weights):
        crc32c = {"name": "crc32c"}
        octets: dict[str, Any] = {"name": "bytes", "configuration": {"endian": "little"}}
        inner = {"name": "bytes"} if array.element.itemsize == 1 else octets
        sharding = {
            "chunk_shape": list(array.chunk),
            "codecs": [inner, crc32c],
            "index_codecs": [octets, crc32c],
            "index_location": "end",
        }
        metadata = {
            "shape": list(array.grid.extent),
            "data_type": zarr_type(array),
            "chunk_grid": {
                "name": "regular",
                "configuration": {"chunk_shape": [3 * step for step in array.chunk]},
            },
            "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
            "attributes": array_attributes(array),
        }
        spec = {
            "driver": "zarr3",
            "kvstore": {"driver": "file", "path": f"{folder_of(local) / path}/"},
            "metadata": metadata,
            "store_data_equal_to_fill_value": True,
        }
        target = await tensorstore.open(spec, create=True)
        await target.write((await stacked(weights, array)).view(target.dtype.numpy_dtype))
    ref = take_inventory(local)
    await assert_same_bits(await AnchorWeights.open(local, 1, ref, weights.table), weights)


@pytest.mark.parametrize("dtype", ["BF16", "F32"])
async def test_chunks_of_minus_zero_survive_both_ways(local: LocalStore, dtype: str) -> None:
    element = DTYPES[dtype]
    minus = np.full((8, 8), 1 << (element.bits - 1), dtype=element.storage)
    weights = HeldWeights(cut_table([TensorSpec("w", (8, 8), element)], 16), {"w": minus})
    ref = await zarr_writes(local, weights)
    await assert_same_bits(await AnchorWeights.open(local, 1, ref, weights.table), weights)
    await write_anchor(local, 2, weights, attempt=ATTEMPT)
    opened = zarr.open_group(folder_of(local, 2), mode="r")["array-00000"]
    assert isinstance(opened, zarr.Array)
    assert np.asarray(opened[...]).tobytes() == minus.tobytes()


async def test_a_chunk_that_zarr_python_left_out_is_not_zeros(local: LocalStore) -> None:
    bits = np.zeros((8, 8), dtype="<u2")
    bits[0, 0] = 1
    weights = HeldWeights(cut_table([TensorSpec("w", (8, 8), DTYPES["BF16"])], 16), {"w": bits})
    ref = await zarr_writes(local, weights, empty_chunks=False)
    with pytest.raises(CorruptError, match=r"chunk 1 is left out|is not in the inventory") as caught:
        await tensors_of(await AnchorWeights.open(local, 1, ref, weights.table))
    assert caught.value.code == "bad_anchor"


async def test_a_compressed_anchor_is_refused(local: LocalStore) -> None:
    weights = hostile_weights(LIMIT, ["BF16"])
    ref = await zarr_writes(local, weights, codec=ZstdCodec())
    with pytest.raises(CorruptError, match="its codecs is not what") as caught:
        await AnchorWeights.open(local, 1, ref, weights.table)
    assert caught.value.code == "bad_anchor"
