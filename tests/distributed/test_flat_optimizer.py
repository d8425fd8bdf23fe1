"""Flat FP32 shards that ignore tensors and chunks, published by 2 to 4 processes without a copy of them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import torch

from deltastore.format.records import DeltaRecord
from deltastore.layout.live import LiveWeights
from deltastore.stores import open_store
from deltastore.stream import AsyncStream
from deltastore.validate import validate
from deltastore.writer.whole import create_stream
from tests.doubles.megatron.ranges import Laid, lay_out
from tests.doubles.megatron.topology import Topology
from tests.doubles.megatron.values import initial_weights
from tests.doubles.models import BFLOAT16, Tensors, cut_table, differing
from tests.doubles.training import Engine

from .flat_trainer import ROUNDS, Scenario, train
from .ranks import Ranks, truth_of

CHUNK_ELEMENTS = 700
"""Chunks of a few rows each: shards begin and end within them."""

SCENARIOS = (
    Scenario("two-data-ranks", Topology(2), "fused", bucket_size=5000),
    Scenario("tensors-cut-in-two", Topology(4, tp=2, ep=2), "foreach"),
    Scenario("experts-of-other-data-ranks", Topology(4, ep=2), "apex", bucket_size=9000),
)
FROM_ZERO = {"fused": 1, "foreach": 1, "apex": 2}
"""In so many versions, biases that began at zero may be sent whole: they are smaller than what moved them.

FP32 bias corrections leave more open, the fewer steps were taken.
"""


def whole_model() -> Tensors:
    return {
        name: tensor.view(torch.int16).numpy().view(BFLOAT16) for name, tensor in initial_weights().items()
    }


async def create_streams(folder: Path) -> None:
    model = whole_model()
    table = cut_table(model, CHUNK_ELEMENTS)
    for scenario in SCENARIOS:
        async with open_store((folder / scenario.name / "stream").as_uri()) as store:
            await create_stream(store, LiveWeights(table, model))


@pytest.fixture(scope="module")
def trained(ranks: Ranks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all scenarios, when they are over."""
    folder = tmp_path_factory.mktemp("flat")
    asyncio.run(create_streams(folder))
    ranks.run(train, max(scenario.topology.world for scenario in SCENARIOS), SCENARIOS, folder)
    return folder


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
@pytest.mark.spec("DS085", "DS088")
async def test_engine_has_what_the_shards_round_to(scenario: Scenario, trained: Path) -> None:
    async with await AsyncStream.open((trained / scenario.name / "stream").as_uri()) as stream:
        assert (await validate(stream.store)).problems == ()
        engine = await Engine.start(stream.store, whole_model())
        for version in range(1, len(ROUNDS) + 1):
            await engine.reader.sync(version)
            due = truth_of(trained / scenario.name, version)
            assert differing(engine.tensors, due) == []


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
async def test_no_copy_was_needed(scenario: Scenario, trained: Path) -> None:
    folder = trained / scenario.name
    elements = sum(tensor.size for tensor in whole_model().values())
    async with await AsyncStream.open((folder / "stream").as_uri()) as stream:
        for version, actions in enumerate(ROUNDS, 1):
            record = await stream.manifest(version)
            assert isinstance(record, DeltaRecord)
            statistics = record.statistics
            assert statistics.detector == "adamw-inversion"
            assert statistics.certificate is not None
            assert (statistics.changed > 0) == ("step" in actions)
            assert statistics.certificate.inverted == actions.count("step") * elements
            if version > FROM_ZERO[scenario.optimizer]:
                assert statistics.certificate.unexplained == 0
            else:
                assert statistics.certificate.unexplained < statistics.certificate.blocks / 8
    for rank in range(scenario.topology.world):
        warnings = json.loads((folder / f"warnings.{rank}.json").read_text())
        assert len(warnings) <= FROM_ZERO[scenario.optimizer]
        assert not any("a copy" in line for line in warnings)


def test_where_parameters_lie() -> None:
    """As megatron-core 0.16.1 lays them out."""
    sizes = (5120, 40, 1920, 2880, 72, 40, 4160)
    layout = lay_out(sizes, 3, bucket_size=4000, alone=(0,))
    assert layout.buckets == ((0, 4224), (4224, 9216), (9216, 9600), (9600, 14976))
    assert layout.params == (
        Laid(6, 0, 4160, 0),
        Laid(5, 4224, 4264, 1),
        Laid(4, 4288, 4360, 1),
        Laid(3, 4416, 7296, 1),
        Laid(2, 7296, 9216, 1),
        Laid(1, 9216, 9256, 2),
        Laid(0, 9600, 14720, 3),
    )
    assert lay_out(sizes, 2).buckets == ((0, 14336),)
    owned = [run for rank in range(3) for run in layout.owned(3, rank)]
    for number, size in enumerate(sizes):
        runs = sorted((run.first, run.end) for run in owned if run.number == number)
        assert [first for first, _ in runs] == [0, *(end for _, end in runs[:-1])]
        assert runs[-1][1] == size
