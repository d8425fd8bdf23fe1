"""Memory that does not grow with the number of versions: neither indexes nor records are kept."""

from __future__ import annotations

import gc

import numpy as np

from deltastore.format.pack import PackIndex
from deltastore.format.records import DeltaRecord
from deltastore.history.comparing import compare_versions
from deltastore.history.counting import stream_stats
from tests.doubles.models import Tensors, cut_table
from tests.doubles.stores import memory_store
from tests.doubles.training import Trainer

VERSIONS = 12


def alive() -> int:
    """Indexes and manifests in memory."""
    return sum(type(one) in (PackIndex, DeltaRecord) for one in gc.get_objects())


async def test_no_index_and_no_record_is_kept() -> None:
    model: Tensors = {"w": np.zeros((40, 32), np.uint16)}
    trainer = await Trainer.create(memory_store(), model, table=cut_table(model, 32), pack_bytes=1 << 20)
    for _ in range(VERSIONS):
        model["w"][:, ::3] ^= 1
        await trainer.publish()
    gc.collect()
    before, seen = alive(), list[int]()

    def watch(done: int, total: int) -> None:
        if done == total:
            seen.append(alive() - before)

    await stream_stats(trainer.store, progress=watch)
    await compare_versions(trainer.store, 0, VERSIONS, progress=watch)
    assert len(seen) == 2
    assert max(seen) <= 4, "the manifests of both versions that are compared, and what is being looked at"
