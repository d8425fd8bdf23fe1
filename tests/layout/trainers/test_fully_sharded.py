"""Shards of torch's placements: even, uneven, empty, strided; against torch's own splitting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch.distributed.tensor.placement_types import Partial, Replicate, Shard, _StridedShard

from deltastore.errors import InputError
from deltastore.layout.planning import check_world
from deltastore.layout.sharded import part_of_sharded
from deltastore.layout.trainers.fully_sharded import fully_sharded
from deltastore.layout.trainers.megatron import megatron
from deltastore.layout.trainers.transformers import transformers
from tests.layout.reassembling import unique_ids

from .small import CONFIGS, add_published, filled


@dataclass
class Mesh:
    """Processes in a grid, of which this is one."""

    extent: tuple[int, ...]
    place: tuple[int, ...] | None

    def get_coordinate(self) -> tuple[int, ...] | None:
        return self.place

    def size(self, axis: int) -> int:
        return self.extent[axis]


@dataclass
class Sharded:
    """What this process has of a tensor, cut by torch's own placements from the left to the right."""

    whole: torch.Tensor
    device_mesh: Mesh
    placements: tuple[Any, ...]
    local: torch.Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        return self.whole.shape

    def to_local(self) -> torch.Tensor:
        if self.local is not None:
            return self.local
        local = self.whole
        for axis, placement in enumerate(self.placements):
            if not isinstance(placement, Replicate) and self.device_mesh.place is not None:
                count = self.device_mesh.extent[axis]
                shards, _ = placement._split_tensor(local, count, with_padding=False)
                local = shards[self.device_mesh.place[axis]]
        return local


def places(extent: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [tuple(place) for place in np.ndindex(*extent)]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 9, 10, 13, 16])
def test_shards_are_ceil_chunks_and_may_be_empty(rows: int, ranks: int) -> None:
    """Others take ``rows // ranks``: ten rows on four ranks are 3, 3, 3 and 1."""
    whole = torch.arange(rows * 3).reshape(rows, 3)
    seen = []
    for rank in range(ranks):
        tensor = Sharded(whole, Mesh((ranks,), (rank,)), (Shard(0),))
        (part,) = part_of_sharded("w", tensor)
        assert torch.equal(part.tensor, whole[part.start[0] : part.start[0] + len(part.tensor)])
        seen += part.tensor.flatten().tolist()
    assert seen == whole.flatten().tolist()


@pytest.mark.parametrize(
    ("extent", "placements"),
    [
        ((2, 2), (_StridedShard(0, split_factor=2), Shard(0))),
        ((3, 4), (_StridedShard(0, split_factor=4), Shard(0))),
        ((3,), (_StridedShard(0, split_factor=2),)),
        ((2, 3), (_StridedShard(0, split_factor=2), Shard(1))),
        ((2, 2), (_StridedShard(1, split_factor=3), Shard(0))),
        ((2, 2, 2), (Replicate(), _StridedShard(0, split_factor=2), Shard(0))),
        ((2, 3), (Replicate(), Shard(-1))),
    ],
    ids=str,
)
def test_strided_shards_are_parts(extent: tuple[int, ...], placements: tuple[Any, ...]) -> None:
    """Tensor parallelism below FSDP."""
    whole = torch.arange(24 * 6).reshape(24, 6)
    seen = torch.zeros_like(whole)
    for place in places(extent):
        for part in part_of_sharded("w", Sharded(whole, Mesh(extent, place), placements)):
            box = tuple(slice(at, at + n) for at, n in zip(part.start, part.tensor.shape, strict=True))
            assert torch.equal(part.tensor, whole[box])
            seen[box] += 1
    assert (seen == 1).all()


@pytest.mark.parametrize(("wide", "deep"), [(2, 3), (3, 2), (4, 4)])
def test_uneven_shards_of_shards_are_right_or_refused(wide: int, deep: int) -> None:
    """Tensor parallelism cuts first, then FSDP each shard; placements may say something else."""
    placements = (_StridedShard(0, split_factor=wide), Shard(0))
    refused: set[int] = set()
    for rows in range(1, 60):
        whole = torch.arange(rows)
        for number, at in np.ndindex(wide, deep):
            shard = Shard(0)._split_tensor(whole, wide, with_padding=False)[0][number]
            due = Shard(0)._split_tensor(shard, deep, with_padding=False)[0][at]
            tensor = Sharded(whole, Mesh((deep, wide), (at, number)), placements, due)
            try:
                parts = part_of_sharded("w", tensor)
            except InputError:
                refused.add(rows)
                continue
            for part in parts:
                assert torch.equal(part.tensor, whole[part.start[0] :][: len(part.tensor)])
            assert torch.equal(torch.cat([part.tensor for part in parts]), due)
    assert all(rows % (wide * deep) for rows in refused)
    assert len(refused) < 30


def test_memory_that_is_not_as_placed_is_refused() -> None:
    tensor = Sharded(torch.zeros(4, 2), Mesh((2,), (0,)), (Shard(0),), torch.zeros(3, 2))
    with pytest.raises(
        InputError, match=r"tensor 'w' holds \[3, 2\] here where its placements give \[2, 2\]"
    ):
        part_of_sharded("w", tensor)


def test_what_is_no_box_is_refused() -> None:
    whole = torch.zeros(4, 2)
    tensor = Sharded(whole, Mesh((2,), (0,)), (Partial(),), whole)
    with pytest.raises(InputError, match=r"tensor 'w' is placed as P.*, which is no box of it"):
        part_of_sharded("w", tensor)
    assert part_of_sharded("w", Sharded(whole, Mesh((2,), None), (Shard(0),))) == ()


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", ["llama", "qwen2-tied", "qwen3-moe", "deepseek"])
def test_shards_of_a_model_are_all_of_it(name: str, ranks: int) -> None:
    whole = transformers(CONFIGS[name])
    ids = unique_ids(whole.tensors)
    params = {param: torch.from_numpy(array) for param, array in filled(whole, ids).items()}
    layouts = [fully_sharded(whole, ranks=ranks, rank=rank) for rank in range(ranks)]
    check_world(layouts)
    by_shards = {tensor: np.zeros_like(of) for tensor, of in ids.items()}
    by_torch = {tensor: np.zeros_like(of) for tensor, of in ids.items()}
    for rank, layout in enumerate(layouts):
        sharded = {
            param: Sharded(tensor, Mesh((2, ranks), (0, rank)), (Replicate(), Shard(0)))
            for param, tensor in params.items()
        }
        held = filled(layout, ids)
        for param, shard in sharded.items():
            assert np.array_equal(held[param], shard.to_local().numpy())
        add_published(layout, held, by_shards)
        boxes = {param: part_of_sharded(param, shard) for param, shard in sharded.items()}
        add_published(whole, boxes, by_torch)
    for name_of, of in ids.items():
        assert np.array_equal(by_shards[name_of], of)
        assert np.array_equal(by_torch[name_of], of)


def test_copies_of_hybrid_shards_are_numbered() -> None:
    whole = transformers(CONFIGS["llama"])
    second = [fully_sharded(whole, ranks=2, rank=rank, replica=1) for rank in range(2)]
    assert {piece.replica for layout in second for piece in layout.pieces} == {1}


def test_what_cannot_be_cut_is_refused() -> None:
    whole = transformers(CONFIGS["llama"])
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"rank": 2}, "rank=2: give an integer from 0 to 1"),
        ({"ranks": 2.0}, "ranks=2.0"),
        ({"ranks": 0}, "ranks=0: give an integer of at least 1"),
        ({"replica": -1}, "replica=-1"),
        ({"axis": -1}, "axis=-1"),
        ({"axis": -9}, "axis=-9"),
        ({"rank": True}, "rank=True"),
    )
    for said, says in refused:
        with pytest.raises(InputError, match=says) as caught:
            fully_sharded(whole, **{"ranks": 2, "rank": 0, **said})
        assert caught.value.code == "bad_argument"
    legacy = megatron(CONFIGS["qwen3-moe"], experts="legacy")
    with pytest.raises(
        InputError, match=r"'decoder.layers.0.mlp.experts.weight1' cannot be cut: it is seen as"
    ):
        fully_sharded(legacy, ranks=2, rank=0)
    with pytest.raises(
        InputError,
        match=r"'model.layers.0.input_layernorm.weight' cannot be cut: its shape \[32\] has no axis 1",
    ):
        fully_sharded(transformers(CONFIGS["llama"]), ranks=2, rank=0, axis=1)
