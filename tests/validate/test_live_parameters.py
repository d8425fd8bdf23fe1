"""Dumps by parameter names, with a layout: every place of every element counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deltastore.checkpoints.checkpoint import Checkpoint
from deltastore.errors import DeltastoreError
from deltastore.layout.engines.vllm import vllm
from deltastore.layout.memory import bits_of
from deltastore.validate.live import open_live
from deltastore.validate.live.params import MappedTensors
from tests.doubles.models import bf16
from tests.reader.shards import AnyLayout, parts_of
from tests.reader.test_shard_engines import DENSE, EXPERTS

from .live_dumps import dump
from .live_streams import ENGINES, compared, dump_params, engine_params, experts, refused, small

pytestmark = pytest.mark.usefixtures("small_windows")


class TestParameters:
    """Dumps by parameter names, with a layout."""

    @pytest.mark.parametrize(("engine", "options"), ENGINES)
    async def test_every_parameter_right_and_wrong(
        self, engine: Any, options: dict[str, Any], tmp_path: Path
    ) -> None:
        trainer = await experts()
        layout = engine(EXPERTS, **options)
        params = engine_params(layout, trainer.history[2])
        report = await compared(trainer.store, dump_params(tmp_path / "right", layout, params))
        assert report.ok
        assert report.elements >= layout.elements
        assert report.holes == sum(one.elements for one in layout.params) - layout.elements
        random = np.random.default_rng(3)
        for piece in random.permutation(np.array(layout.pieces, dtype=object))[:3]:
            wrong = {name: param.copy() for name, param in params.items()}
            form = bits_of("", wrong[piece.param]).reshape(layout.forms[piece.param].form)
            form[piece.at] ^= 1  # of widened ones that is a lower half
            folder = dump_params(tmp_path / "wrong", layout, wrong)
            report = await compared(trainer.store, folder)
            assert not report.ok
            assert {one.parameter for one in report.apart} == {piece.param}
            assert {one.index for one in report.apart if one.tensor == piece.tensor} == {piece.lo}
            assert report.found == sum(one.elements for one in report.apart)

    async def test_an_older_version(self, tmp_path: Path) -> None:
        trainer = await experts()
        layout = vllm(EXPERTS, tp=2, rank=1)
        folder = dump_params(tmp_path / "old", layout, engine_params(layout, trainer.history[1]))
        report = await compared(trainer.store, folder)
        assert not report.ok
        assert (report.version, report.instead) == (2, 1)
        assert (await compared(trainer.store, folder, version=1)).ok

    async def test_the_layout_of_another_rank_or_engine(self, tmp_path: Path) -> None:
        trainer = await experts()
        layout = vllm(EXPERTS, tp=2, rank=1)
        folder = dump_params(tmp_path / "rank", layout, engine_params(layout, trainer.history[2]))
        report = await compared(trainer.store, folder, layout=vllm(EXPERTS, tp=2, rank=0))
        assert not report.ok
        assert report.shares[None] > 0
        turned = await compared(trainer.store, folder, layout=vllm(EXPERTS, tp=2, rank=1, experts="up_first"))
        assert {(one.parameter or "").rpartition(".")[2] for one in turned.apart} == {"w13_weight"}
        await refused(trainer, folder, "wrong_shape", layout=vllm(EXPERTS, tp=4, rank=1))
        await refused(
            trainer, folder, "missing_tensor", layout=vllm({**EXPERTS, "num_hidden_layers": 1}, tp=2)
        )
        await refused(trainer, folder, "wrong_dtype", layout=vllm(EXPERTS, tp=2, rank=1, router="F32"))

    async def test_a_parameter_that_is_missing_or_nobodys(self, tmp_path: Path) -> None:
        trainer = await experts()
        layout = vllm(EXPERTS, tp=2, rank=1)
        params = engine_params(layout, trainer.history[2])
        few = dict(list(params.items())[1:])
        await refused(trainer, dump_params(tmp_path / "few", layout, few), "missing_tensor")
        (tmp_path / "more").mkdir()
        dump(tmp_path / "more/parameters.safetensors", {**params, "more": bf16([1])})
        await refused(trainer, tmp_path / "more", "unknown_tensor", layout=layout)

    async def test_a_tied_parameter_that_is_dumped_by_itself(self, tmp_path: Path) -> None:
        trainer = await experts(config=DENSE)
        layout = vllm(DENSE, tp=2, rank=1)
        params = engine_params(layout, trainer.history[2])
        tie, own = next(iter(layout.ties.items()))
        params[tie] = params[own].copy()
        assert (await compared(trainer.store, dump_params(tmp_path / "tied", layout, params))).ok
        bits_of("", params[tie])[1, 1] ^= 1
        report = await compared(trainer.store, dump_params(tmp_path / "tied", layout, params))
        assert not report.ok
        assert [name for _, name in report.astray] == [tie]

    @pytest.mark.parametrize("seed", range(6))
    async def test_any_layout(self, seed: int, tmp_path: Path) -> None:
        trainer = await small()
        layout = AnyLayout(trainer.model, np.random.default_rng(seed)).done()
        params = engine_params(layout, trainer.history[2])
        folder = dump_params(tmp_path / "any", layout, params)
        report = await compared(trainer.store, folder, version=2)
        assert report.ok
        assert report.elements == layout.elements
        if layout.pieces:
            assert not (await compared(trainer.store, folder, version=1)).ok

    @pytest.mark.parametrize("data", [b"", b"{}", b'{"format":2}', b"\xff" * 20])
    async def test_a_layout_file_that_is_none(self, data: bytes, tmp_path: Path) -> None:
        trainer = await small()
        folder = dump_params(tmp_path / "bad", parts_of(trainer.model, 0, 1), {})
        (folder / "layout.json").write_bytes(data)
        with pytest.raises(DeltastoreError):
            open_live(folder)


def test_pages_of_a_dump_that_were_looked_at_are_given_back(tmp_path: Path) -> None:
    path = dump(tmp_path / "w.safetensors", {"w": np.arange(1 << 18, dtype=np.uint16)})
    with Checkpoint.open(path) as checkpoint:
        mapped = MappedTensors(checkpoint)
        assert int(mapped.bits("w").sum()) > 0
        assert resident(path) >= 1 << 19
        mapped.forget()
        assert resident(path) == 0
        mapped.close()


def resident(path: Path) -> int:
    """Bytes of a mapped file in memory."""
    maps = Path("/proc/self/smaps").read_text().splitlines()
    (at,) = (number for number, line in enumerate(maps) if line.endswith(str(path)))
    (rss,) = (line for line in maps[at + 1 : at + 6] if line.startswith("Rss:"))
    return int(rss.split()[1]) << 10
