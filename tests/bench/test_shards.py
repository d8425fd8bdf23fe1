"""What each rank of a sharded engine asks the store for: its share of the bytes, in a few requests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deltastore.bench.figure import Figure
from deltastore.bench.shards import measure
from deltastore.bench.shards.measure import measure_shards
from deltastore.bench.shards.models import ShardsPlan
from deltastore.stores.open import open_store
from tests.cli.running import run_here
from tests.doubles.stores import WatchedStore
from tests.servers.server import Server

DENSE = ShardsPlan("qwen3-8b", layers=1, instead={"vocab_size": 4096, "intermediate_size": 4096})
MIXTURE = ShardsPlan("qwen3-30b-a3b", layers=1, ep=8, instead={"vocab_size": 4096, "num_experts": 32})


async def measured(url: str, plan: ShardsPlan) -> dict[tuple[str, str], Figure]:
    """All figures, by name and what they are measured against."""
    return {(one.name, one.beside): one async for one in measure_shards(url, plan)}


@pytest.mark.parametrize("plan", [DENSE, MIXTURE], ids=["eight TP ranks", "eight EP ranks"])
async def test_every_rank_fetches_its_share_of_a_delta_of_real_shapes(weed: Server, plan: ShardsPlan) -> None:
    """The layers have the real shapes, but for fewer rows of an MLP or fewer experts of them."""
    url = weed.url(weed.bucket("bench-shards"), plan.name)
    found = await measured(url, plan)
    for rank in range(8):
        bytes_fetched, requests = (
            found[f"rank {rank} fetched", "its share"],
            found[f"rank {rank}, of a pack", ""],
        )
        assert bytes_fetched.ratio is not None
        assert 1 <= bytes_fetched.ratio <= 1.03
        assert 1 <= requests.value <= 4
    together = found["all ranks fetched", "the delta"]
    assert together.ratio is not None
    # Nearly all of it is of one rank only; norms and the like go to all.
    assert 1 <= together.ratio <= 1.04
    packs = found["packs of the delta", ""].value
    assert packs >= 3  # slabs of less than a megabyte share one
    assert found["requests of all ranks", ""].value <= 36
    async with open_store(url) as store:
        assert [info async for info in store.list("")] == []


async def test_only_what_is_measured_is_asked_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    stores: list[WatchedStore] = []

    def watched(url: str) -> WatchedStore:
        stores.append(WatchedStore(open_store(url)))
        return stores[-1]

    monkeypatch.setattr(measure, "open_store", watched)
    little = ShardsPlan("qwen3-0.6b", layers=1, slabs=2, tp=2, instead={"vocab_size": 1024})
    found = await measured("memory://bench-shards", little)
    (store,) = stores
    assert not [call.key for call in store.calls if call.key.startswith("anchors/")]
    asked = [key for key in store.keys("get", "get_range") if key.startswith("packs/")]
    assert len(asked) == found["requests of all ranks", ""].value
    assert store.fetched / 1e6 >= found["all ranks fetched", "the delta"].value > 0


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    little = ("--vocabulary", "1024", "--tp", "2", "--slabs", "2")
    done = run_here(capsys, "bench", "shards", tmp_path / "store", "--model", "qwen3-0.6b", *little)
    assert done.status == 0
    (line,) = [line for line in done.out.splitlines() if line.startswith("rank 1 fetched")]
    assert re.search(r" MB +1\.\d{4} of its share", line)
    refused = run_here(capsys, "bench", "shards", tmp_path / "store", "--model", "gpt-2")
    assert refused.status == 2
    assert "qwen3-30b-a3b" in refused.err
