"""Four processes of torch.distributed publish their shards; an engine in their parent has the same bits."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import numpy as np
import pytest

from deltastore.stream import AsyncStream
from deltastore.validate import validate
from tests.doubles.models import differing

from .following import Following
from .sharding import PROCESSES
from .torch_trainer import STEPS, train

# A fork is not for processes that have loaded torch, and tensorstore survives none.
SPAWNING = multiprocessing.get_context("spawn")


@pytest.mark.spec("DS085", "DS088")
async def test_engine_has_what_the_ranks_gather(tmp_path: Path) -> None:
    url = (tmp_path / "stream").as_uri()
    ranks = [
        SPAWNING.Process(target=train, args=(rank, url, tmp_path), daemon=True) for rank in range(PROCESSES)
    ]
    for rank in ranks:
        rank.start()
    try:
        async with await AsyncStream.open(url, wait=60) as stream:
            engine = await Following.begin(stream)
            await engine.until(STEPS)
            for rank in ranks:
                rank.join()
            assert [rank.exitcode for rank in ranks] == [0] * PROCESSES
            assert (await validate(stream.store)).problems == ()
            other = await Following.begin(stream)
            for version in range(1, STEPS + 1):
                await other.engine.reader.sync(version)
                with np.load(tmp_path / f"{version}.npz") as gathered:
                    due = {name: bits.view("<u2") for name, bits in gathered.items()}
                assert differing(other.engine.tensors, due) == []
                assert version not in engine.seen or differing(engine.seen[version], due) == []
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()
            rank.close()
