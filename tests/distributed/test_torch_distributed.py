"""Four processes of torch.distributed publish their shards; an engine in their parent has the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltastore.stream import AsyncStream
from deltastore.validate import validate
from tests.doubles.models import differing

from .following import Following
from .ranks import Ranks, truth_of
from .sharding import PROCESSES
from .torch_trainer import STEPS, train


@pytest.mark.spec("DS085", "DS088")
async def test_engine_has_what_the_ranks_gather(ranks: Ranks, tmp_path: Path) -> None:
    url = (tmp_path / "stream").as_uri()
    with ranks.running(train, PROCESSES, url, tmp_path) as wait:
        async with await AsyncStream.open(url, wait=60) as stream:
            engine = await Following.begin(stream)
            await engine.until(STEPS)
            wait()
            assert (await validate(stream.store)).problems == ()
            other = await Following.begin(stream)
            for version in range(1, STEPS + 1):
                await other.engine.reader.sync(version)
                due = truth_of(tmp_path, version)
                assert differing(other.engine.tensors, due) == []
                assert version not in engine.seen or differing(engine.seen[version], due) == []
