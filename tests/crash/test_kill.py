"""kill -9 of a trainer at every write: the stream stays sound, and the next trainer continues."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deltastore.errors import ConflictError, NotFoundError
from deltastore.log import Log
from deltastore.reader.opening import open_reader
from deltastore.stores.local import LocalStore
from deltastore.stream import AsyncStream
from deltastore.validate import validate
from deltastore.writer.opening import open_writer
from tests.doubles.models import bf16, bits, blank, differing

from .dying_publisher import VERSIONS, history, model_of

ROOT = Path(__file__).parents[2]


def killed_trainers(folder: Path, scenario: str, when: str) -> list[Path]:
    """The streams that trainers left, killed at one write after another; the last one lived."""
    command = [sys.executable, "-m", "tests.crash.dying_publisher", str(folder), scenario, when]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return [folder / str(number) for number in range(1, int(result.stdout) + 1)]


async def newest_version(store: LocalStore) -> int | None:
    """The newest version that readers see. It is whole, as is every version before it, or there is none."""
    if await Log(store).record(0) is None:
        with pytest.raises(NotFoundError):
            await open_reader(store, blank(model_of(0)))
        return None
    report = await validate(store)
    assert report.problems == ()
    wanted = history()
    engine = blank(model_of(0))
    try:
        reader = await open_reader(store, engine)
    except NotFoundError:
        assert report.versions == 0
        return None
    for version in range(report.versions):
        await reader.sync(version)
        assert differing(engine, wanted[version]) == []
    assert reader.newest == report.versions - 1
    return reader.newest


async def continues(store: LocalStore, version: int | None) -> None:
    """A new trainer, whose model is the one that ``version`` would be next, publishes; a reader follows."""
    model = model_of(0 if version is None else min(version + 1, VERSIONS - 1))
    if version is None:
        await AsyncStream.create(store, model)
        version = 0
    writer = await open_writer(store, model)
    model["norm"][0] = bf16(0x1DEA)
    published = await writer.publish()
    assert published.version == version + 1
    model["norm"][1] = bf16(0x1DEA)
    assert (await writer.publish()).kind == "delta"
    engine = blank(model)
    await (await open_reader(store, engine)).sync()
    assert differing(engine, bits(model)) == []
    assert (await validate(store)).problems == ()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.spec("DS002", "DS005", "DS006", "DS083")
async def test_creating_a_stream(tmp_path: Path, when: str) -> None:
    folders = killed_trainers(tmp_path, "create", when)
    assert len(folders) > 8
    seen = []
    for folder in folders:
        store = LocalStore(folder)
        seen.append(await newest_version(store))
        await continues(store, seen[-1])
    assert seen == sorted(seen, key=lambda version: -1 if version is None else version)
    assert (seen[0], seen[-1]) == (None, 0)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.spec("DS002", "DS005", "DS006", "DS055", "DS083")
async def test_publishing_a_delta_an_anchor_and_a_delta(tmp_path: Path, when: str) -> None:
    await AsyncStream.create(LocalStore(tmp_path / "0"), model_of(0))
    folders = killed_trainers(tmp_path, "publish", when)
    assert len(folders) > 15
    seen = []
    for folder in folders:
        store = LocalStore(folder)
        seen.append(await newest_version(store))
        assert seen[-1] is not None
        with pytest.raises(ConflictError):
            await AsyncStream.create(store, model_of(0))
        await continues(store, seen[-1])
    assert sorted(set(seen), key=str) == [0, 1, 2, 3]
    assert seen == sorted(seen, key=str)
