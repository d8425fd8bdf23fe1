"""Writing a version as a checkpoint: whole or not at all."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from deltastore.checkpoints import Checkpoint
from deltastore.errors import CorruptError, InputError
from deltastore.export import Exported, export_version
from deltastore.stores.local import LocalStore
from deltastore.stream import AsyncStream

TENSORS = {f"layers.{layer}.weight": (64, 64) for layer in range(6)}


def weights(seed: int) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.uint16]]]:
    draw = np.random.default_rng(seed)
    return {name: draw.integers(0, 1 << 16, shape, dtype=np.uint16) for name, shape in TENSORS.items()}


@pytest.fixture
async def store(tmp_path: Path) -> LocalStore:
    """A stream with versions 0 and 1."""
    store = LocalStore(tmp_path / "stream")
    stream = await AsyncStream.create(store, weights(0))
    writer = await stream.writer(live := weights(0))
    live["layers.3.weight"][:] = weights(1)["layers.3.weight"]
    await writer.publish()
    return store


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def read(folder: Path) -> dict[str, bytes]:
    with Checkpoint.open(folder) as checkpoint:
        return {tensor.name: checkpoint.bits(tensor.name).tobytes() for tensor in checkpoint.tensors}


async def test_a_large_model_is_cut_into_shards_with_an_index(store: LocalStore, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = await export_version(store, 1, out, shard_bytes=3 * 64 * 64 * 2)
    shards = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}
    assert names(out) == {*shards, "model.safetensors.index.json"}
    assert {path.name for path in done.weights} == names(out)
    index = json.loads((out / "model.safetensors.index.json").read_text())
    assert set(index["weight_map"]) == set(TENSORS)
    wanted = {**weights(0), "layers.3.weight": weights(1)["layers.3.weight"]}
    assert read(out) == {name: bits.tobytes() for name, bits in wanted.items()}


async def test_it_says_what_was_written(store: LocalStore, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    done = await export_version(store, None, tmp_path / "out", progress=lambda *at: seen.append(at))
    nbytes = len(TENSORS) * 64 * 64 * 2
    manifest = await AsyncStream(store).newest()
    assert done == Exported(
        version=1,
        directory=tmp_path / "out",
        weights=(tmp_path / "out" / "model.safetensors",),
        files=(),
        tensors=len(TENSORS),
        nbytes=nbytes,
        digest=manifest.digest,
    )
    assert seen[-1] == (nbytes, nbytes)
    assert [at for at, _ in seen] == sorted({at for at, _ in seen})


async def test_force_replaces_weights_of_any_number_of_shards(store: LocalStore, tmp_path: Path) -> None:
    out = tmp_path / "out"
    await export_version(store, 0, out, shard_bytes=1)
    (out / "notes.txt").write_text("mine")
    with pytest.raises(InputError) as refused:
        await export_version(store, 1, out)
    assert refused.value.code == "bad_argument"
    await export_version(store, 1, out, force=True)
    assert names(out) == {"model.safetensors", "notes.txt"}


async def test_an_empty_folder_is_taken_and_kept_when_the_writing_fails(
    store: LocalStore, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (pack,) = (tmp_path / "stream").glob("packs/*/*")
    pack.write_bytes(pack.read_bytes()[:-1])
    with pytest.raises(CorruptError):
        await export_version(store, 1, out)
    assert names(out) == set()
    await export_version(store, 0, out)
    assert names(out) == {"model.safetensors"}


async def test_an_error_half_way_leaves_no_folder(store: LocalStore, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if 2 * done >= total:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await export_version(store, 1, tmp_path / "out", progress=stop)
    assert not (tmp_path / "out").exists()


DIE_HALF_WAY = """
import asyncio, os, sys
from deltastore.export import export_version
from deltastore.stores.local import LocalStore
from pathlib import Path

def die(done, total):
    if 2 * done >= total:
        os._exit(9)

asyncio.run(export_version(LocalStore(Path(sys.argv[1])), 1, sys.argv[2], progress=die))
"""


async def test_a_process_killed_half_way_leaves_nothing_that_looks_whole(
    store: LocalStore, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    arguments = [sys.executable, "-c", DIE_HALF_WAY, str(tmp_path / "stream"), str(out)]
    assert subprocess.run(arguments, check=False, timeout=60).returncode == 9
    assert [path.name for path in out.iterdir() if not path.name.startswith(".")] == []
    with pytest.raises(InputError):
        Checkpoint.open(out)
    await export_version(store, 1, out)
    assert {name for name in names(out) if not name.startswith(".")} == {"model.safetensors"}
