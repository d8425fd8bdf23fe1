"""megatron-core's own distributed optimizer: its range map, and its shards published without a copy."""

from __future__ import annotations

import random
import warnings
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from deltastore.format.records import DeltaRecord
from deltastore.layout.live import LiveWeights
from deltastore.stores import open_store
from deltastore.stream import AsyncStream
from deltastore.validate import validate
from deltastore.writer.whole import create_stream
from tests.doubles.megatron.ranges import lay_out
from tests.doubles.megatron.values import initial_weights
from tests.doubles.models import BFLOAT16, Tensors, cut_table, differing
from tests.doubles.training import Engine

from .megatron_core_trainer import ROUNDS, TOPOLOGY, train
from .ranks import Ranks, truth_of

CHUNK_ELEMENTS = 700


def module(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the libraries for GPUs that are not there
        return import_module(f"megatron.core.{name}")


def group(ranks: int, rank: int) -> SimpleNamespace:
    return SimpleNamespace(size=lambda: ranks, rank=lambda: rank)


def test_the_range_map_is_that_of_the_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    buffers = module("distributed.param_and_grad_buffer")
    optimizer = module("optimizer.distrib_optimizer").DistributedOptimizer
    settings = module("distributed").DistributedDataParallelConfig(use_distributed_optimizer=True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: "cpu")
    monkeypatch.setattr(buffers, "log_on_each_pipeline_stage", lambda *_, **__: None)
    chance = random.Random(1)
    for _ in range(100):
        sizes = [
            chance.choice([1, 40, 63, 64, 65, 128, chance.randint(1, 5000)])
            for _ in range(chance.randint(1, 12))
        ]
        ranks = chance.choice([1, 2, 3, 4, 6, 8])
        rank = chance.randrange(ranks)
        bucket_size = chance.choice([None, 1, 100, 1000, 4000])
        alone = chance.sample(range(len(sizes)), chance.choice([0, 0, 1]))
        params = [torch.nn.Parameter(torch.zeros(size, dtype=torch.bfloat16)) for size in sizes]
        numbers = {param: number for number, param in enumerate(params)}
        for number in alone:
            params[number].shared_embedding = True  # type: ignore[attr-defined]
        buffer = buffers._ParamAndGradBuffer(
            settings, torch.bfloat16, torch.float32, params, group(ranks, rank), bucket_size,
            {param: str(number) for param, number in numbers.items()}, 1.0, list(range(len(sizes))), False,
            SimpleNamespace(tp=group(1, 0), dp_cp=group(ranks, rank)),
        )  # fmt: skip
        layout = lay_out(sizes, ranks, bucket_size=bucket_size, alone=alone)
        assert buffer.bucket_indices == list(layout.buckets)
        assert [(numbers[param], *place) for param, place in buffer.param_index_map.items()] == [
            (laid.number, laid.start, laid.end, laid.bucket) for laid in layout.params
        ]
        (buckets,) = optimizer._build_gbuf_range_map(buffer).values()
        theirs = [
            (numbers[param], found["param"].start, found["param"].end, found["gbuf_world"].start)
            for bucket in buckets
            for param, found in bucket["param_map"].items()
        ]
        assert theirs == [(own.number, own.first, own.end, own.at) for own in layout.owned(ranks, rank)]


def whole_model() -> Tensors:
    return {
        name: tensor.view(torch.int16).numpy().view(BFLOAT16) for name, tensor in initial_weights().items()
    }


async def test_engine_has_what_the_ranks_gather(ranks: Ranks, tmp_path: Path) -> None:
    url = (tmp_path / "stream").as_uri()
    model = whole_model()
    async with open_store(url) as store:
        await create_stream(store, LiveWeights(cut_table(model, CHUNK_ELEMENTS), model))
    ranks.run(train, TOPOLOGY.world, tmp_path)
    elements = sum(tensor.size for tensor in model.values())
    async with await AsyncStream.open(url) as stream:
        assert (await validate(stream.store)).problems == ()
        engine = await Engine.start(stream.store, model)
        for version, actions in enumerate(ROUNDS, 1):
            await engine.reader.sync(version)
            due = truth_of(tmp_path, version)
            assert differing(engine.tensors, due) == []
            record = await stream.manifest(version)
            assert isinstance(record, DeltaRecord)
            certificate = record.statistics.certificate
            assert certificate is not None
            assert certificate.inverted == actions.count("step") * elements
            assert version == 1 or certificate.unexplained <= 1
