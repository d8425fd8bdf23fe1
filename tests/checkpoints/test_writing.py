"""Checkpoints that other programs read, bit for bit."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import deserialize, safe_open
from safetensors.torch import load_file

from deltastore.checkpoints import Checkpoint, CheckpointWeights, write_checkpoint
from deltastore.errors import InputError, StoreError
from deltastore.format.dtypes import DTYPES
from deltastore.format.table import TensorSpec, TensorTable
from deltastore.layout.cutting import plain_table
from deltastore.layout.weights import Bits
from tests.anchors.models import HeldWeights, Tensors, assert_same_bits, hostile_weights, tensors_of

INDEX = "model.safetensors.index.json"
LIMITS = pytest.mark.parametrize("limit", [1 << 20, 16, 5, 1])


def loaded(path: Path) -> dict[str, Any]:
    """A file as the safetensors library takes it apart: element type, shape and bytes by name."""
    return {
        name: (found["dtype"], found["shape"], bytes(found["data"]))
        for name, found in deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
    }


async def wanted(weights: HeldWeights) -> dict[str, Any]:
    dtypes = {spec.name: spec.dtype.name for spec in weights.table.tensors()}
    tensors = await tensors_of(weights)
    return {name: (dtypes[name], list(bits.shape), bits.tobytes()) for name, bits in tensors.items()}


@LIMITS
async def test_the_library_reads_every_bit_of_every_element_type(tmp_path: Path, limit: int) -> None:
    weights = hostile_weights(limit)
    (path,) = await write_checkpoint(weights, tmp_path / "out")
    assert path == tmp_path / "out" / "model.safetensors"
    assert os.listdir(tmp_path / "out") == ["model.safetensors"]
    assert loaded(path) == await wanted(weights)


async def test_torch_can_view_every_tensor(tmp_path: Path) -> None:
    names = [name for name in DTYPES if "FNUZ" not in name]
    weights = hostile_weights(16, names)
    (path,) = await write_checkpoint(weights, tmp_path)
    assert load_file(path).keys() == (await tensors_of(weights)).keys()


async def test_every_tensor_is_aligned_to_its_elements(tmp_path: Path) -> None:
    odd = [TensorSpec(f"{name}.odd", (3,), DTYPES[name]) for name in DTYPES]
    held = {spec.name: np.ones(3, dtype=spec.dtype.storage) for spec in odd}
    (path,) = await write_checkpoint(HeldWeights(plain_table(odd), held), tmp_path)
    length = int.from_bytes(path.read_bytes()[:8], "little")
    assert length % 8 == 0
    header = json.loads(path.read_bytes()[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    for entry in header.values():
        assert entry["data_offsets"][0] % DTYPES[entry["dtype"]].itemsize == 0


async def test_tensors_of_one_width_are_in_table_order(tmp_path: Path) -> None:
    weights = hostile_weights(16, ["BF16"])
    (path,) = await write_checkpoint(weights, tmp_path)
    header = json.loads(path.read_bytes()[8 : 8 + int.from_bytes(path.read_bytes()[:8], "little")])
    assert [name for name in header if name != "__metadata__"] == [
        spec.name for spec in weights.table.tensors()
    ]


@LIMITS
@pytest.mark.parametrize("shard_bytes", [1, 100, 300])
async def test_shards_and_their_index(tmp_path: Path, limit: int, shard_bytes: int) -> None:
    weights = hostile_weights(limit, ["BF16", "F64", "U8"])
    paths = await write_checkpoint(weights, tmp_path, shard_bytes=shard_bytes)
    *shards, index = paths
    count = len(shards)
    assert count > 1
    assert [path.name for path in shards] == [
        f"model-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)
    ]
    assert index == tmp_path / INDEX
    assert sorted(os.listdir(tmp_path)) == sorted(path.name for path in paths)
    found: dict[str, Any] = {}
    for path in shards:
        inside = loaded(path)
        assert len(inside) == 1 or sum(len(data) for _, _, data in inside.values()) <= shard_bytes
        found |= inside
    assert found == await wanted(weights)
    described = json.loads(index.read_text())
    assert described["metadata"]["total_size"] == weights.table.nbytes
    places = {name: path.name for path in shards for name in loaded(path)}
    assert described["weight_map"] == places


@LIMITS
@pytest.mark.parametrize("shard_bytes", [100, 1 << 30])
async def test_what_is_written_is_read_back(tmp_path: Path, limit: int, shard_bytes: int) -> None:
    weights = hostile_weights(limit)
    await write_checkpoint(weights, tmp_path, shard_bytes=shard_bytes)
    with Checkpoint.open(tmp_path) as checkpoint:
        await assert_same_bits(CheckpointWeights(checkpoint, weights.table), weights)


async def test_names_that_are_not_ascii(tmp_path: Path) -> None:
    table = plain_table([TensorSpec('gewicht.ß."\\', (2,), DTYPES["U8"])])
    (path,) = await write_checkpoint(HeldWeights(table, {'gewicht.ß."\\': np.ones(2, dtype="u1")}), tmp_path)
    with safe_open(path, "np") as opened:
        assert list(opened.keys()) == ['gewicht.ß."\\']


async def test_a_name_that_the_format_keeps_for_itself(tmp_path: Path) -> None:
    table = plain_table([TensorSpec("__metadata__", (2,), DTYPES["U8"])])
    with pytest.raises(InputError, match="cannot hold a tensor named __metadata__"):
        await write_checkpoint(HeldWeights(table, {}), tmp_path / "out")
    assert not (tmp_path / "out").exists()


async def test_a_model_without_tensors(tmp_path: Path) -> None:
    (path,) = await write_checkpoint(HeldWeights(plain_table([]), {}), tmp_path)
    assert loaded(path) == {}


async def test_progress_adds_up_to_the_model(tmp_path: Path) -> None:
    weights = hostile_weights(16, ["F32", "U8"])
    done: list[int] = []
    await write_checkpoint(weights, tmp_path, shard_bytes=500, progress=done.append)
    assert sum(done) == weights.table.nbytes
    assert len(done) > 3


async def test_a_folder_that_holds_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InputError, match="is not empty") as caught:
        await write_checkpoint(hostile_weights(16, ["U8"]), tmp_path)
    assert caught.value.code == "bad_argument"
    assert os.listdir(tmp_path) == ["config.json"]


async def test_overwriting_replaces_the_weights_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    old, new = hostile_weights(16, ["F64", "U8"]), hostile_weights(16, ["BF16"])
    await write_checkpoint(old, tmp_path, shard_bytes=100, overwrite=True)
    assert len(os.listdir(tmp_path)) > 4
    await write_checkpoint(new, tmp_path, overwrite=True)
    assert sorted(os.listdir(tmp_path)) == ["config.json", "model.safetensors"]
    await write_checkpoint(old, tmp_path, shard_bytes=100, overwrite=True)
    assert "model.safetensors" not in os.listdir(tmp_path)
    with Checkpoint.open(tmp_path) as checkpoint:
        await assert_same_bits(CheckpointWeights(checkpoint, old.table), old)


class FailingWeights(HeldWeights):
    """Fails at the last chunk."""

    def __init__(self, table: TensorTable, tensors: Tensors) -> None:
        super().__init__(table, tensors)
        self.left = sum(len(array.grid) for array in table.arrays)

    async def read(self, array: int, chunk: int) -> Bits:
        self.left -= 1
        if self.left == 0:
            raise StoreError("store_failed", "the network is gone")
        return await super().read(array, chunk)


@pytest.mark.parametrize("shard_bytes", [100, 1 << 30])
async def test_a_failure_leaves_nothing_new_and_all_that_was(tmp_path: Path, shard_bytes: int) -> None:
    old = hostile_weights(16, ["U8"])
    await write_checkpoint(old, tmp_path)
    new = hostile_weights(16, ["BF16"])
    failing = FailingWeights(new.table, await tensors_of(new))
    with pytest.raises(StoreError, match="the network is gone"):
        await write_checkpoint(failing, tmp_path, shard_bytes=shard_bytes, overwrite=True)
    assert os.listdir(tmp_path) == ["model.safetensors"]
    with Checkpoint.open(tmp_path) as checkpoint:
        await assert_same_bits(CheckpointWeights(checkpoint, old.table), old)


async def test_a_crash_between_two_files_leaves_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = hostile_weights(16, ["BF16"])
    rename, renamed = os.rename, []

    def crash(source: Path, target: Path) -> None:
        renamed.append(target)
        if len(renamed) == 3:
            raise OSError(5, "Input/output error")
        rename(source, target)

    monkeypatch.setattr(os, "rename", crash)
    with pytest.raises(InputError, match="Input/output error"):
        await write_checkpoint(weights, tmp_path, shard_bytes=100)
    assert len(list(tmp_path.glob("*.safetensors"))) == 1
    with pytest.raises(InputError, match="cannot open"):
        Checkpoint.open(tmp_path)


async def test_the_draft_of_a_killed_process_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / ".deltastore-0123").mkdir()
    weights = hostile_weights(16, ["BF16"])
    await write_checkpoint(weights, tmp_path)
    with Checkpoint.open(tmp_path) as checkpoint:
        await assert_same_bits(CheckpointWeights(checkpoint, weights.table), weights)


@pytest.mark.parametrize("shard_bytes", [0, -1])
async def test_shards_of_nothing_are_refused(tmp_path: Path, shard_bytes: int) -> None:
    with pytest.raises(InputError, match="give 1 or more"):
        await write_checkpoint(hostile_weights(16, ["U8"]), tmp_path / "out", shard_bytes=shard_bytes)
    assert not (tmp_path / "out").exists()


async def test_a_file_in_the_way_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(InputError, match="cannot write") as caught:
        await write_checkpoint(hostile_weights(16, ["U8"]), tmp_path / "out")
    assert caught.value.code == "bad_argument"


async def test_a_header_that_no_reader_takes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deltastore.checkpoints.header.HEADER_BYTES", 200)
    with pytest.raises(InputError, match="give a smaller shard_bytes"):
        await write_checkpoint(hostile_weights(16, ["U8"]), tmp_path / "out")
    assert not (tmp_path / "out").exists()
