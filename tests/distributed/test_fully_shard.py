"""Shards of torch's ``fully_shard``, uneven and empty ones too, published without a copy of the weights."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
import torch

from deltastore.format.records import DeltaRecord
from deltastore.stream import AsyncStream
from deltastore.validate import validate
from tests.doubles.models import BFLOAT16, Tensors, differing
from tests.doubles.training import Engine

from .fully_sharded_trainer import ROUNDS, Sharding, network, train
from .ranks import Ranks, truth_of
from .sharding import PROCESSES

SHARDINGS = (Sharding("of-all", (4,), ("fused",)), Sharding("of-replicas", (2, 2), ("foreach",)))


def masters() -> dict[str, torch.Tensor]:
    return {name: tensor.detach() for name, tensor in network().named_parameters()}


def blank_engine() -> Tensors:
    return {name: np.full(tuple(tensor.shape), 7, BFLOAT16) for name, tensor in masters().items()}


async def create_streams(folder: Path) -> None:
    for sharding in SHARDINGS:
        url = (folder / sharding.name / "stream").as_uri()
        await (await AsyncStream.create(url, masters(), cast="BF16")).close()


@pytest.fixture(scope="module")
def trained(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of both shardings, when all processes have ended."""
    folder = tmp_path_factory.mktemp("sharded")
    asyncio.run(create_streams(folder))
    ranks.run(train, PROCESSES, SHARDINGS, folder)
    return folder


@pytest.mark.parametrize("sharding", SHARDINGS, ids=lambda sharding: sharding.name)
@pytest.mark.spec("DS085", "DS088")
async def test_engine_has_what_the_ranks_gather(sharding: Sharding, trained: Path) -> None:
    folder = trained / sharding.name
    async with await AsyncStream.open((folder / "stream").as_uri()) as stream:
        assert (await validate(stream.store)).problems == ()
        engine = await Engine.start(stream.store, blank_engine())
        elements = sum(tensor.size for tensor in engine.tensors.values())
        for version, actions in enumerate(ROUNDS, 1):
            await engine.reader.sync(version)
            due = truth_of(folder, version)
            assert differing(engine.tensors, due) == []
            record = await stream.manifest(version)
            assert isinstance(record, DeltaRecord)
            certificate = record.statistics.certificate
            assert (record.statistics.detector, certificate is None) == ("adamw-inversion", False)
            assert certificate is not None
            assert certificate.inverted == actions.count("step") * elements
            assert (record.statistics.changed > 0) == ("step" in actions)
            assert version == 1 or certificate.unexplained == 0
