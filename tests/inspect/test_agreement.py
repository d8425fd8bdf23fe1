"""``inspect --check`` and ``validate`` say the same of the same bytes: code, requirement and offset."""

from __future__ import annotations

import numpy as np
import pytest

from deltastore.inspect.found import Wanted
from deltastore.inspect.looking import inspect_object
from deltastore.inspect.source import open_source
from deltastore.stores.memory import MemoryStore
from deltastore.validate import Level, validate
from tests.doubles.stores import flipped, memory_store
from tests.inspect.test_objects import STREAMS, files

Said = tuple[str, str | None, int | None]


async def validated(store: MemoryStore, key: str) -> Said | None:
    """What validation says of an object first; None of what writers say to each other, which it leaves."""
    of_version = key.startswith(("packs/", "anchors/"))
    version = int(key.split("/")[1]) if of_version else None
    report = await validate(store, level=Level.CONTENT, version=version, jobs=1)
    found = [problem for problem in report.problems if problem.where == key]
    return (found[0].code, found[0].check, found[0].offset) if found else None


async def inspected(store: MemoryStore, key: str) -> Said:
    """What a look at it says first."""
    source = await open_source(f"{store.url}/{key}")
    found = (await inspect_object(source, Wanted(check=True))).problems
    assert found, key
    return found[0].code, found[0].rule, found[0].offset


def damages(data: bytes, draw: np.random.Generator) -> list[bytes]:
    """A flipped bit somewhere and in the first bytes, an end that is missing, and a byte too many."""
    places = [int(draw.integers(len(data))), int(draw.integers(min(64, len(data))))] if data else []
    return [data + b"x", *(flipped(data, at, int(draw.integers(8))) for at in places), data[: len(data) // 2]]


@pytest.mark.parametrize("name", sorted(path.name for path in STREAMS.iterdir() if path.is_dir()))
async def test_damage_is_called_the_same(name: str) -> None:
    """One damage to every object, and several to some."""
    draw, store = np.random.default_rng(len(name)), memory_store()
    objects = {str(path.relative_to(STREAMS / name)): path.read_bytes() for path in files(STREAMS / name)}
    for key, data in objects.items():
        await store.put(key, data)
    for number, (key, data) in enumerate(objects.items()):
        damaged = damages(data, draw)
        for one in damaged if number % 9 == 0 else damaged[number % len(damaged) :][:1]:
            await store.put(key, one)
            said = await validated(store, key)
            if said is not None:
                assert (key, await inspected(store, key)) == (key, said)
            else:
                # What writers said to each other, and packs of an attempt that was given up.
                assert not key.startswith(("log/", "tables/", "anchors/", "files/")), key
        await store.put(key, data)
