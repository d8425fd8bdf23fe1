"""Shards of small models: layouts of every form, memory for their parameters, and what must stand there."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from deltastore.format.dtypes import DTYPES
from deltastore.format.records import DeltaRecord
from deltastore.format.table import TensorSpec
from deltastore.layout.drawing import Drawing
from deltastore.layout.live import live_specs
from deltastore.layout.memory import bits_of
from deltastore.layout.pieces import Layout
from deltastore.log import Log
from deltastore.reader.following import AsyncReader
from deltastore.reader.opening import open_reader
from deltastore.stores.base import Store
from tests.doubles.models import NATIVE, Bits, Tensors
from tests.doubles.training import Trainer

Rule = Callable[[Layout, Bits, Bits], Bits]

F32 = DTYPES["F32"]


def params_for(layout: Layout, fill: int = 0x5A) -> dict[str, Any]:
    """Contiguous NumPy memory for every parameter, holding something else."""
    return {
        param.name: np.full(param.elements * param.dtype.itemsize, fill, np.uint8)
        .view(NATIVE[param.dtype.name])
        .reshape(param.shape)
        for param in layout.params
    }


def expected(layout: Layout, version: Bits, before: Bits) -> Bits:
    """What every parameter must hold: ``before``, with the elements of ``version``, one at a time."""
    after = {name: bits.copy() for name, bits in before.items()}
    for piece in layout.pieces:
        param, tensor = layout.forms[piece.param], version[piece.tensor]
        form = after[piece.param].reshape(param.form)
        shift = 16 * (param.dtype.itemsize == 2 * tensor.dtype.itemsize)
        for index in itertools.product(*map(range, piece.size)):
            at = list(piece.at)
            for axis, offset in zip(piece.axes, index, strict=True):
                at[axis] += offset
            source = tuple(low + offset for low, offset in zip(piece.lo, index, strict=True))
            form[tuple(at)] = int(tensor[source]) << shift
    return after


def sliced(layout: Layout, version: Bits, before: Bits) -> Bits:
    """The same as ``expected``, a piece at a time."""
    after = {name: bits.copy() for name, bits in before.items()}
    for piece in layout.pieces:
        form = after[piece.param].reshape(layout.forms[piece.param].form)
        box = version[piece.tensor][tuple(map(slice, piece.lo, map(int.__add__, piece.lo, piece.size)))]
        place = tuple(map(slice, piece.at, map(int.__add__, piece.at, piece.extent)))
        thin = tuple(axis for axis in range(form.ndim) if axis not in piece.axes)
        turned = np.expand_dims(box.transpose(np.argsort(piece.axes)), thin).astype(form.dtype)
        form[place] = turned << (8 * (form.itemsize - box.itemsize))
    return after


def held_bits(params: Mapping[str, Any]) -> Bits:
    return {name: np.array(bits_of(name, param)) for name, param in params.items()}


@dataclass
class Shard:
    """A reader of a shard, its parameters, and what they held at the start."""

    layout: Layout
    params: dict[str, Any]
    before: Bits
    reader: AsyncReader

    @classmethod
    async def start(
        cls, store: Store, layout: Layout, params: dict[str, Any] | None = None, **options: Any
    ) -> Shard:
        params = params_for(layout) if params is None else params
        reader = await open_reader(store, params, layout=layout, **options)
        return cls(layout, params, held_bits(params), reader)

    def wrong(self, history: Mapping[int, Bits], rule: Rule = expected) -> list[str]:
        """Parameters that do not hold exactly the version that the reader reports."""
        version = self.reader.version
        assert version is not None
        wanted, found = rule(self.layout, history[version], self.before), held_bits(self.params)
        return [name for name in wanted if wanted[name].tobytes() != found[name].tobytes()]


def parts_of(model: Tensors, rank: int, ranks: int) -> Layout:
    """Rows of matrices by rank, whatever is no matrix whole; ranks beyond the rows hold nothing of it."""
    drawing = Drawing(f"rank {rank} of {ranks}", live_specs(model))
    for spec in live_specs(model):
        if len(spec.shape) != 2 or not spec.elements:
            drawing.whole(spec)
            continue
        first, end = (spec.shape[0] * at // ranks for at in (rank, rank + 1))
        param = drawing.param(spec.name, (end - first, spec.shape[1]), spec.dtype)
        drawing.rows(spec, first, end - first, param, 0)
    return drawing.done()


async def newest_delta(trainer: Trainer) -> DeltaRecord:
    """The record of the version that was published last."""
    record = await Log(trainer.store).newest_manifest()
    assert isinstance(record, DeltaRecord)
    return record


class AnyLayout:
    """A random layout of a model: boxes, turned, stacked with padding, twice, widened, seen flat."""

    def __init__(self, model: Tensors, random: np.random.Generator) -> None:
        self._random = random
        self._drawing = Drawing("any", live_specs(model))
        self._count = 0
        for spec in live_specs(model):
            for _ in range(int(random.integers(0, 3))):
                self._place(spec)

    def done(self) -> Layout:
        return self._drawing.done()

    def _place(self, spec: TensorSpec) -> None:
        chance = self._random
        if not spec.elements:
            return
        lo = tuple(int(chance.integers(length)) for length in spec.shape)
        size = tuple(
            int(chance.integers(1, length - low + 1)) for length, low in zip(spec.shape, lo, strict=True)
        )
        axes = tuple(int(axis) for axis in chance.permutation(len(size)))
        form = [0] * len(size)
        for axis, length in zip(axes, size, strict=True):
            form[axis] = length
        dtype = F32 if spec.dtype.name == "BF16" and chance.random() < 0.3 else spec.dtype
        self._count += 1
        name = f"param.{self._count}"
        padding = int(chance.integers(0, 3))
        stacked = [1 + padding, *form]
        at = (int(chance.integers(1 + padding)), *(0 for _ in form))
        flat = chance.random() < 0.3
        shape = [int(np.prod(stacked))] if flat else stacked
        self._drawing.param(name, shape, dtype, view=stacked if flat else None)
        self._drawing.place(spec, name, lo=lo, size=size, at=at, axes=[axis + 1 for axis in axes])
        for other in range(1 + padding):
            if other != at[0]:
                self._drawing.hole(name, (other, *(0 for _ in form)), (1, *form))

    def memory(self, layout: Layout) -> dict[str, Any]:
        """NumPy arrays and torch tensors, contiguous or not."""
        return dict(self._memory(layout))

    def _memory(self, layout: Layout) -> Iterator[tuple[str, Any]]:
        for name, param in params_for(layout).items():
            plain = layout.forms[name].view is None
            if plain and self._random.random() < 0.5:
                wide = np.repeat(param, 2, axis=-1)
                param = wide[..., ::2]
                if self._random.random() < 0.5:
                    param = np.array(param.T, order="C").T[::-1]
            if param.dtype == ml_dtypes.bfloat16 and self._random.random() < 0.5 and param.strides[0] >= 0:
                param = torch.from_numpy(param.view(np.int16)).view(torch.bfloat16)
            yield name, param


def fetch_by_ranges(patch: pytest.MonkeyPatch, gap: int = 0) -> None:
    """Small objects are read in ranges as large ones are."""
    patch.setattr("deltastore.reader.fetch_plan._SMALL_BYTES", 0)
    patch.setattr("deltastore.reader.fetch_plan._GAP_BYTES", gap)
    patch.setattr("deltastore.anchors.portion._SMALL_BYTES", 0)
    patch.setattr("deltastore.anchors.portion._GAP_BYTES", gap)
