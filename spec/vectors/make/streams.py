"""Small whole streams, with the bits of every version. Written once by a release, then kept for ever."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np

from deltastore import __version__
from deltastore.log import Log
from deltastore.stores.local import LocalStore
from deltastore.stream import AsyncStream

Tensors = dict[str, np.ndarray[Any, Any]]


def write_streams(folder: Path) -> None:
    """Write this release's stream unless it is there."""
    name = f"v1-by-{__version__}"
    if not (folder / name).exists():
        asyncio.run(_write(folder, name))


def _model(rng: np.random.Generator) -> Tensors:
    import ml_dtypes

    def bf16(*shape: int) -> np.ndarray[Any, Any]:
        return (rng.standard_normal(shape) * 0.02).astype(ml_dtypes.bfloat16)

    tensors: Tensors = {f"layers.{layer}.proj.weight": bf16(24, 16) for layer in (0, 1, 3)}
    tensors |= {f"layers.{layer}.norm.weight": bf16(16) for layer in (0, 1, 3)}
    tensors["embed.weight"] = bf16(50, 16)
    tensors["router.weight"] = rng.standard_normal((4, 16)).astype(np.float32)
    tensors["fp8.weight"] = bf16(8, 8).astype(ml_dtypes.float8_e4m3fn)
    tensors["fp8.scale"] = np.array(0.25, dtype=np.float32)
    tensors["mask"] = np.array([True, False, True])
    tensors["steps"] = np.arange(4, dtype=np.int64)
    tensors["empty"] = np.zeros((0, 3), dtype=np.float16)
    return tensors


def _move(tensors: Tensors, rng: np.random.Generator, share: float) -> None:
    """Change about ``share`` of the elements by one bit, or to anything."""
    for tensor in tensors.values():
        bits = tensor.reshape(-1).view(f"u{tensor.itemsize}")
        chosen = rng.random(bits.size) < share
        flip = rng.choice([1, 1, 1, 1 << (8 * tensor.itemsize - 2)], bits.size).astype(bits.dtype)
        if tensor.dtype != bool:
            bits[chosen] ^= flip[chosen]


async def _write(folder: Path, name: str) -> None:
    rng = np.random.default_rng(1)
    tensors = _model(rng)
    store = LocalStore(folder / name)
    versions: dict[str, Any] = {}
    async with await AsyncStream.create(store, tensors, label="vectors") as stream:
        writer = await stream.writer(tensors, label="vectors")
        versions["0"] = await _facts(stream, tensors, 0)
        for version, share in ((1, 0.02), (2, 0.0), (3, 0.9), (5, 0.1)):
            _move(tensors, rng, share)
            if version == 1:
                tensors["embed.weight"].view(np.uint16)[0, :4] = [0x8000, 0x7FC1, 0xFFA5, 0x7F80]
            await writer.publish(version=version, step=version * 10)
            versions[str(version)] = await _facts(stream, tensors, version)
        _move(tensors, rng, 0.1)
        await writer.publish(anchor=True)
        versions["6"] = await _facts(stream, tensors, 6)
        _move(tensors, rng, 0.01)
        await writer.publish()
        versions["7"] = await _facts(stream, tensors, 7)
    (folder / f"{name}.json").write_text(json.dumps({"versions": versions}, indent=1) + "\n", encoding="ascii")


async def _facts(stream: AsyncStream, tensors: Tensors, version: int) -> dict[str, Any]:
    manifest = await Log(stream.store).manifest(version)
    table = (await stream.weights(version)).table
    facts = {}
    for spec in table.tensors():
        facts[spec.name] = {
            "dtype": spec.dtype.name,
            "shape": list(spec.shape),
            "bits": tensors[spec.name].tobytes().hex(),
        }
    return {"digest": manifest.digest, "tensors": facts}
