"""Every way that reads bytes of a store: an attack is refused there, or does not reach it.

Each way ends with a named error, or with weights that are exactly those of the sound stream; and checks by
itself that a refused one has left everything as it was.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from deltastore.checkpoints import Checkpoint
from deltastore.errors import DeltastoreError
from deltastore.export import export_version
from deltastore.log import Log
from deltastore.pull import PARAMETERS_FILE, pull_shard
from deltastore.stores.base import Store
from deltastore.stores.wrapped import WrappedStore
from deltastore.validate import Level, validate
from deltastore.writer.opening import open_writer
from spec.decoder import SpecError, check_stream
from tests.doubles.models import differing
from tests.doubles.stores import contents
from tests.doubles.training import Engine
from tests.reader.shards import Shard, expected, held_bits

from .oracle import weights_of
from .victim import HELD, Victim

Reach = Callable[["Scene"], Awaitable[None]]


@dataclass(frozen=True)
class Refusal:
    """How a way ended that did not end well."""

    code: str
    rule: str | None
    where: str | None
    message: str


@dataclass(frozen=True)
class Scene:
    """An attack on a victim. ``known``: the store before, ``store``: after it; ``folder``: of this way."""

    victim: Victim
    known: Store
    store: Store
    folder: Path


async def refusal_of(way: str, scene: Scene) -> Refusal | None:
    """Go this way; None where nothing was refused, and what was read was right."""
    try:
        await WAYS[way](scene)
    except DeltastoreError as error:
        return Refusal(error.code, error.rule, error.where, str(error))
    return None


class _ReportedError(DeltastoreError):
    """A problem of a report, as if it had been raised."""


def _validating(level: Level) -> Reach:
    async def validating(scene: Scene) -> None:
        report = await validate(scene.store, level=level, jobs=1)
        for problem in report.problems:
            raise _ReportedError(problem.code, problem.message, where=problem.where, rule=problem.check)

    return validating


async def _decoder(scene: Scene) -> None:
    """The decoder of the specification, which checks all of a stream."""
    root = scene.folder / "stream"
    for key, data in (await contents(scene.store)).items():
        path = root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    try:
        check_stream(root)
    except SpecError as error:
        raise _ReportedError(error.code, str(error), where=error.where, rule=error.check) from None


def _is_right(scene: Scene, version: int | None, held: Any) -> None:
    """Exactly the weights of the sound version: the newest, or an older one where others are withheld."""
    assert version in scene.victim.history
    assert differing(held, scene.victim.history[version]) == []


async def _whole(scene: Scene) -> None:
    """A reader of all tensors, which hold something else."""
    engine = await Engine.start(scene.store, scene.victim.model, threads=1)
    before = held_bits(engine.tensors)
    try:
        await engine.reader.sync()
    except DeltastoreError:
        # An anchor is written shard by shard; until all of it is right, the reader has no version.
        if engine.reader.version is None:
            assert engine.reader.torn or differing(engine.tensors, before) == []
        else:
            assert engine.wrong(scene.victim.history) == []
        raise
    _is_right(scene, engine.reader.version, engine.tensors)


async def _follower(scene: Scene) -> None:
    """A reader that was at a version before the attack."""
    turning = WrappedStore(scene.known)
    engine = await Engine.start(turning, scene.victim.tensors(HELD), loaded=True, threads=1)
    await engine.reader.sync()
    assert engine.reader.version == HELD
    turning.inner = scene.store
    try:
        await engine.reader.sync()
    except DeltastoreError:
        assert engine.state()[1] is False
        assert engine.wrong(scene.victim.history) == []
        raise
    _is_right(scene, engine.reader.version, engine.tensors)


async def _shard(scene: Scene) -> None:
    """A reader of a part, which fetches ranges."""
    with by_ranges():
        shard = await Shard.start(scene.store, scene.victim.half, threads=1)
        try:
            await shard.reader.sync()
        except DeltastoreError:
            if shard.reader.version is None:
                assert shard.reader.torn or held_bits(shard.params).keys() == shard.before.keys()
            else:
                assert shard.wrong(scene.victim.history) == []
            raise
        assert shard.reader.version in scene.victim.history
        assert shard.wrong(scene.victim.history) == []


async def _shard_follower(scene: Scene) -> None:
    """A reader of a part that was at a version before the attack."""
    with by_ranges():
        turning = WrappedStore(scene.known)
        shard = await Shard.start(turning, scene.victim.half, threads=1)
        await shard.reader.sync()
        assert shard.reader.version == HELD
        turning.inner = scene.store
        try:
            await shard.reader.sync()
        except DeltastoreError:
            assert not shard.reader.torn
            assert shard.wrong(scene.victim.history) == []
            raise
        assert shard.reader.version in scene.victim.history
        assert shard.wrong(scene.victim.history) == []


async def _export(scene: Scene) -> None:
    """An export: a folder that is complete, or none."""
    out = scene.folder / "exported"
    try:
        done = await export_version(scene.store, None, out)
    except DeltastoreError:
        assert _below(scene.folder) == []
        raise
    with Checkpoint.open(out) as checkpoint:
        held = {tensor.name: np.array(checkpoint.bits(tensor.name)) for tensor in checkpoint.tensors}
    assert {path.parent for path in (*done.weights, *done.files)} == {out}
    _is_right(scene, done.version, held)


async def _pull(scene: Scene) -> None:
    """All parameters as a file: complete, or none."""
    out = scene.folder / "pulled"
    try:
        done = await pull_shard(scene.store, scene.victim.whole, None, out)
    except DeltastoreError:
        assert _below(scene.folder) in ([], ["pulled"])
        raise
    layout = scene.victim.whole
    empty = {param.name: np.zeros(param.shape, param.dtype.storage) for param in layout.params}
    wanted = expected(layout, scene.victim.history[done.synced.version], empty)
    with Checkpoint.open(out / PARAMETERS_FILE) as checkpoint:
        for tensor in checkpoint.tensors:
            assert checkpoint.bits(tensor.name).tobytes() == wanted[tensor.name].tobytes()


async def _replay(scene: Scene) -> None:
    """The newest version, chunk by chunk, with its digest compared as everybody does who replays."""
    manifest = await Log(scene.store).newest_manifest()
    held, digest = await weights_of(scene.store, manifest.version)
    if digest != manifest.digest:
        raise _ReportedError("bad_digest", "the weights have another digest", rule="DS062")
    _is_right(scene, manifest.version, held)


async def _writer(scene: Scene) -> None:
    """A trainer that goes on where the newest version is."""
    tensors = scene.victim.tensors(scene.victim.newest)
    before = {name: held.copy() for name, held in tensors.items()}
    try:
        writer = await open_writer(scene.store, tensors, threads=1)
    finally:
        assert differing(tensors, before) == []
    await writer.close()


def _below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@contextmanager
def by_ranges() -> Iterator[None]:
    """Small objects are read by ranges, as large ones are."""
    with (
        patch("deltastore.reader.fetch_plan._SMALL_BYTES", 0),
        patch("deltastore.reader.fetch_plan._GAP_BYTES", 0),
        patch("deltastore.anchors.portion._SMALL_BYTES", 0),
        patch("deltastore.anchors.portion._GAP_BYTES", 0),
    ):
        yield


WAYS: dict[str, Reach] = {
    "structure": _validating(Level.STRUCTURE),
    "content": _validating(Level.CONTENT),
    "deep": _validating(Level.DEEP),
    "reader": _whole,
    "follower": _follower,
    "shard": _shard,
    "shard follower": _shard_follower,
    "export": _export,
    "pull": _pull,
    "replay": _replay,
    "writer": _writer,
    "decoder": _decoder,
}
PRODUCT = tuple(way for way in WAYS if way != "decoder")
READERS = frozenset(PRODUCT) - {"structure", "content", "deep", "writer"}
FOLLOWERS = frozenset({"follower", "shard follower"})
