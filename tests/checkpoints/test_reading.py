"""Checkpoints that other programs wrote, read bit for bit."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from deltastore.checkpoints import Checkpoint, CheckpointWeights
from deltastore.checkpoints.header import StoredTensor, header_bytes
from deltastore.errors import InputError
from deltastore.format.dtypes import DTYPES
from deltastore.format.table import TensorSpec
from deltastore.layout.cutting import plain_table
from deltastore.layout.weights import Bits
from tests.anchors.models import (
    Tensors,
    assert_same_bits,
    cut_table,
    hostile_tensors,
    hostile_weights,
    tensors_of,
)

TORCH = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E8M0": torch.float8_e8m0fnu,
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "U16": torch.uint16,
    "I16": torch.int16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "U64": torch.uint64,
    "I64": torch.int64,
    "C64": torch.complex64,
}


def as_torch(name: str, bits: Bits) -> torch.Tensor:
    signed = torch.from_numpy(np.array(bits.view(f"i{bits.itemsize}")))
    return signed.view(TORCH[name])


def write(path: Path, tensors: dict[str, tuple[str, Bits]]) -> None:
    """A safetensors file of (element type, bits), in this order, without regard to alignment."""
    stored, at = [], 0
    for name, (dtype, bits) in tensors.items():
        stored.append(StoredTensor(TensorSpec(name, bits.shape, DTYPES[dtype]), at))
        at += bits.nbytes
    path.write_bytes(header_bytes(stored) + b"".join(bits.tobytes() for _, bits in tensors.values()))


def write_shards(folder: Path, shards: Iterable[Tensors], *, index: bool) -> None:
    folder.mkdir(exist_ok=True)
    weight_map: dict[str, str] = {}
    for number, tensors in enumerate(shards):
        name = f"model-{number:05d}.safetensors"
        write(folder / name, {tensor: ("BF16", bits) for tensor, bits in tensors.items()})
        weight_map |= dict.fromkeys(tensors, name)
    if index:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def halves(tensors: Tensors) -> list[Tensors]:
    names = sorted(tensors)
    return [{name: tensors[name] for name in names[::2]}, {name: tensors[name] for name in names[1::2]}]


@pytest.mark.parametrize("dtype", sorted(TORCH))
async def test_every_bit_that_the_library_wrote(tmp_path: Path, dtype: str) -> None:
    weights = hostile_weights(16, [dtype])
    tensors = await tensors_of(weights)
    path = tmp_path / "model.safetensors"
    save_file(
        {name: as_torch(dtype, bits) for name, bits in tensors.items()}, path, metadata={"format": "pt"}
    )
    with Checkpoint.open(path) as checkpoint:
        assert {spec.dtype.name for spec in checkpoint.tensors} == {dtype}
        for name, bits in tensors.items():
            found = checkpoint.bits(name)
            assert (found.shape, found.dtype) == (bits.shape, bits.dtype)
            assert found.tobytes() == bits.tobytes()
        await assert_same_bits(CheckpointWeights(checkpoint, weights.table), weights)


@pytest.mark.parametrize("limit", [1 << 20, 16, 5, 1])
async def test_every_element_type_in_one_unaligned_file(tmp_path: Path, limit: int) -> None:
    weights = hostile_weights(limit)
    tensors = await tensors_of(weights)
    odd = {"odd": ("U8", np.zeros(3, dtype="u1"))}
    dtypes = {spec.name: spec.dtype.name for spec in weights.table.tensors()}
    write(tmp_path / "m.safetensors", odd | {name: (dtypes[name], bits) for name, bits in tensors.items()})
    with Checkpoint.open(tmp_path / "m.safetensors") as checkpoint:
        assert checkpoint.bits("odd").tolist() == [0, 0, 0]
        found = await tensors_of(CheckpointWeights(checkpoint, cut_table(checkpoint.tensors, limit)))
        for name, bits in tensors.items():
            assert checkpoint.bits(name).tobytes() == bits.tobytes()
            assert found[name].tobytes() == bits.tobytes()


@pytest.mark.parametrize("limit", [1 << 20, 16, 5, 1])
@pytest.mark.parametrize("index", [True, False])
async def test_a_folder_of_shards(tmp_path: Path, limit: int, index: bool) -> None:
    weights = hostile_weights(limit, ["BF16"])
    write_shards(tmp_path, halves(await tensors_of(weights)), index=index)
    with Checkpoint.open(tmp_path) as checkpoint:
        await assert_same_bits(CheckpointWeights(checkpoint, weights.table), weights)


async def test_an_index_says_which_files_count(tmp_path: Path) -> None:
    tensors = hostile_tensors(DTYPES["BF16"])
    write_shards(tmp_path, halves(tensors), index=True)
    shutil.copy(tmp_path / "model-00000.safetensors", tmp_path / "consolidated.safetensors")
    with Checkpoint.open(str(tmp_path)) as checkpoint:
        assert {spec.name for spec in checkpoint.tensors} == set(tensors)


async def test_links_into_a_cache_are_followed(tmp_path: Path) -> None:
    tensors = hostile_tensors(DTYPES["BF16"])
    write_shards(tmp_path / "blobs", halves(tensors), index=True)
    (tmp_path / "snapshot").mkdir()
    for blob in (tmp_path / "blobs").iterdir():
        (tmp_path / "snapshot" / blob.name).symlink_to(os.path.relpath(blob, tmp_path / "snapshot"))
    with Checkpoint.open(tmp_path / "snapshot") as checkpoint:
        assert {spec.name for spec in checkpoint.tensors} == set(tensors)


async def test_what_is_read_whole_cannot_be_written_to(tmp_path: Path) -> None:
    write(tmp_path / "m.safetensors", {"w": ("BF16", np.ones((2, 2), dtype="<u2"))})
    with (
        Checkpoint.open(tmp_path / "m.safetensors") as checkpoint,
        pytest.raises(ValueError, match="read-only"),
    ):
        checkpoint.bits("w")[0, 0] = 0


async def test_metadata_and_padding_of_a_header_are_allowed(tmp_path: Path) -> None:
    header = b'{"__metadata__":{"format":"pt"},"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}   \n'
    (tmp_path / "m.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"ab")
    with Checkpoint.open(tmp_path / "m.safetensors") as checkpoint:
        assert checkpoint.bits("w").tobytes() == b"ab"


async def test_a_checkpoint_without_tensors(tmp_path: Path) -> None:
    write(tmp_path / "m.safetensors", {})
    with Checkpoint.open(tmp_path / "m.safetensors") as checkpoint:
        assert checkpoint.tensors == []
        assert await tensors_of(CheckpointWeights(checkpoint, plain_table([]))) == {}


async def test_tensors_that_do_not_fit_the_table(tmp_path: Path) -> None:
    write(tmp_path / "m.safetensors", {"w": ("BF16", np.ones((2, 3), dtype="<u2"))})
    cases: dict[str, list[tuple[str, tuple[int, ...], str]]] = {
        "missing_tensor": [("w", (2, 3), "BF16"), ("v", (1,), "BF16")],
        "unknown_tensor": [("v", (2, 3), "BF16")],
        "wrong_shape": [("w", (3, 2), "BF16")],
        "wrong_dtype": [("w", (2, 3), "F16")],
    }
    with Checkpoint.open(tmp_path / "m.safetensors") as checkpoint:
        for code, specs in cases.items():
            table = plain_table([TensorSpec(name, shape, DTYPES[dtype]) for name, shape, dtype in specs])
            with pytest.raises(InputError) as caught:
                CheckpointWeights(checkpoint, table)
            assert caught.value.code == code


async def test_a_file_cut_short_while_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    write(path, {"w": ("BF16", np.ones((64, 64), dtype="<u2"))})
    with Checkpoint.open(path) as checkpoint:
        weights = CheckpointWeights(checkpoint, plain_table(checkpoint.tensors))
        os.truncate(path, path.stat().st_size - 1)
        with pytest.raises(InputError, match="ended at byte") as caught:
            await weights.read(0, 0)
    assert caught.value.code == "bad_checkpoint"


async def test_closing_closes_every_file(tmp_path: Path) -> None:
    write_shards(tmp_path, halves(hostile_tensors(DTYPES["BF16"])), index=True)
    before = len(os.listdir("/proc/self/fd"))
    checkpoint = Checkpoint.open(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before + 2
    checkpoint.close()
    checkpoint.close()
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(InputError, match="cannot read"):
        checkpoint.bits("BF16.minus")
