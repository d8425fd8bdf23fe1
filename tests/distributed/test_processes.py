"""Four processes that share nothing but the store publish together; an engine follows."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from deltastore.stream import AsyncStream
from deltastore.validate import validate
from tests.crash.processes import Child
from tests.doubles.models import BFLOAT16, Bits, differing
from tests.doubles.stores import contents, copied
from tests.servers.server import Server

from .following import Following
from .plain_trainer import STEPS, Place, masters, step, train
from .sharding import PROCESSES


def expected() -> dict[int, Bits]:
    """The bits of every version: the masters rounded to nearest even, with one NaN of each sign."""
    whole, versions = masters(), {}
    for number in range(STEPS + 1):
        if number:
            step(whole, number)
        versions[number] = {name: tensor.astype(BFLOAT16).view("<u2") for name, tensor in whole.items()}
    return versions


async def train_together(url: str) -> None:
    async with await AsyncStream.create(url, masters(), cast="BF16") as stream:
        engine = await Following.begin(stream)
        places = [Place(url, "run-1", rank, dict(os.environ)) for rank in range(PROCESSES)]
        trainers = [Child(train, place) for place in places]
        try:
            await engine.until(STEPS)
            published = await asyncio.gather(*(trainer.received() for trainer in trainers))
        finally:
            for trainer in trainers:
                trainer.close()
        assert published == [list(range(1, STEPS + 1))] * PROCESSES
        assert len(engine.seen) > 2
        versions = expected()
        for version, found in engine.seen.items():
            assert differing(found, versions[version]) == []
        copy = await copied(await contents(stream.store))
        assert (await validate(copy)).problems == ()
        other = await Following.begin(AsyncStream(copy))
        for version, due in versions.items():
            await other.engine.reader.sync(version)
            assert differing(other.engine.tensors, due) == []


@pytest.mark.spec("DS085", "DS088")
async def test_on_a_folder(tmp_path: Path) -> None:
    await train_together(tmp_path.as_uri())


@pytest.mark.spec("DS085", "DS088")
async def test_on_seaweed(weed: Server) -> None:
    await train_together(weed.url(weed.bucket("distributed"), "plain"))
