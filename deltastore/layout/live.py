"""Live weights: the tensors that a trainer or an engine holds in memory, seen through the stream's table."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from deltastore.errors import InputError
from deltastore.format.dtypes import DTYPES, Dtype
from deltastore.format.table import TensorSpec, TensorTable
from deltastore.kernels.grid import Box
from deltastore.kernels.pieces import Piece, Pieces
from deltastore.layout.casting import Caster, caster_of, stands_for
from deltastore.layout.device import host_copy, is_on_device
from deltastore.layout.fitting import check_tensors
from deltastore.layout.live_parts import LiveParts
from deltastore.layout.memory import (
    LiveTensors,
    bits_of,
    check_named,
    element_type,
    is_torch,
    place_of,
    same_memory,
)

__all__ = ["LiveWeights", "live_specs"]

Bits = np.ndarray[Any, Any]


def live_specs(tensors: LiveTensors, *, cast: str | None = None) -> list[TensorSpec]:
    """What a new stream of these tensors would hold; F32 tensors become ``cast`` where that is given."""
    check_named(tensors)
    target = None if cast is None else _cast_target(cast)
    specs = []
    for name, tensor in tensors.items():
        dtype = element_type(name, tensor)
        if target is not None and dtype.name == "F32":
            dtype = target
        specs.append(TensorSpec(name, tuple(tensor.shape), dtype))
    return specs


def _cast_target(cast: str) -> Dtype:
    if cast not in ("BF16", "F16"):
        raise InputError("bad_argument", f"cast is 'BF16' or 'F16', not {cast!r}")
    return DTYPES[cast]


class LiveWeights:
    """Named live tensors as ``Weights``, read in place.

    ``cast=True`` lets an F32 tensor stand for one that the stream holds as BF16 or F16, rounded to nearest
    even chunk by chunk, every NaN to the quiet one of its sign. A name that the table lacks is fine when its
    memory is that of a name it has (a tied head). Raises ``InputError`` naming the first tensor that does not
    fit.
    """

    def __init__(self, table: TensorTable, tensors: LiveTensors, *, cast: bool = False) -> None:
        check_named(tensors)
        self._table = table
        own = {name: tensor for name, tensor in tensors.items() if name in table.places}
        self._own, self._cast = own, cast
        views = {name: bits_of(name, tensor) for name, tensor in own.items()}
        spare = {name: tensor for name, tensor in tensors.items() if name not in own}
        tied = {name for name, tensor in spare.items() if _is_tied(bits_of(name, tensor), views)}
        specs = []
        casts: dict[str, Caster] = {}
        for name, tensor in tensors.items():
            if name in tied:
                continue
            dtype = element_type(name, tensor)
            wanted = _wanted(table, name)
            if wanted is not None and stands_for(dtype, wanted, cast):
                if dtype.name == "F32":
                    casts[name] = caster_of(tensor, wanted)
                dtype = wanted
            specs.append(TensorSpec(name, tuple(tensor.shape), dtype))
        check_tensors(table, specs)
        self._views = [[views[name] for name in array.names] for array in table.arrays]
        self._casts = [[casts.get(name) for name in array.names] for array in table.arrays]
        self._places = [(name, tensor, place_of(tensor)) for name, tensor in own.items() if is_torch(tensor)]

    @property
    def table(self) -> TensorTable:
        """The stream's table."""
        return self._table

    @cached_property
    def parts(self) -> LiveParts:
        """The same tensors as parts of which each is a whole one."""
        return LiveParts(self._table, self._own, cast=self._cast)

    @cached_property
    def pieces(self) -> Pieces | None:
        """Every tensor in its memory; None where one is cast, or not in the memory of the CPU."""
        return None if self.devices else self._pieces

    @cached_property
    def device_pieces(self) -> Pieces | None:
        """Every tensor in its memory; None unless all are on one GPU, and none is cast."""
        views = [view for views in self._views for view in views]
        return self._pieces if len(self.devices) == 1 and all(map(is_on_device, views)) else None

    @cached_property
    def devices(self) -> frozenset[str]:
        """The GPUs on which there are tensors."""
        return frozenset(str(view.device) for views in self._views for view in views if is_on_device(view))

    @property
    def _pieces(self) -> Pieces | None:
        if any(caster is not None for casts in self._casts for caster in casts):
            return None
        return Pieces(
            self._table.kernels,
            (
                Piece(number, member, (0,) * view.ndim, view)
                for number, views in enumerate(self._views)
                for member, view in enumerate(views)
            ),
        )

    def views(self, array: int) -> list[Any]:
        """Every member of an array as a view of its live memory, as ``bits_of`` gives it."""
        return self._views[array]

    def check_in_place(self) -> None:
        """``InputError("wrong_memory")`` when the memory of a torch tensor has been replaced meanwhile.

        Offloading, resharding or moving a model does that; what is held here is then not the model any more.
        """
        for name, tensor, place in self._places:
            if place_of(tensor) != place:
                raise InputError(
                    "wrong_memory",
                    f"tensor {name!r} has got other memory since it was given: open a new writer or reader",
                    where=name,
                )

    async def read(self, array: int, chunk: int) -> Bits:
        """The chunk's bits; a view of live memory where the chunk lies in one tensor of the CPU."""
        box = self._table.arrays[array].grid.box(chunk)
        return self.read_box(array, box)

    def read_box(self, array: int, box: Box) -> Bits:
        """The bits of any box over (member, tensor axes)."""
        first, count, inner = box.start[0], box.size[0], box.slices[1:]
        parts = [self._member(array, member, inner) for member in range(first, first + count)]
        return parts[0][None] if len(parts) == 1 else np.stack(parts)

    def tensor(self, array: int, member: int) -> Bits:
        """The bits of one whole tensor."""
        return self._member(array, member, (...,))

    def _member(self, array: int, member: int, index: Any) -> Bits:
        caster = self._casts[array][member]
        if caster is not None:
            return caster(index)
        part = self._views[array][member][index]
        return host_copy(part) if is_on_device(part) else part


def _wanted(table: TensorTable, name: str) -> Dtype | None:
    place = table.places.get(name)
    return None if place is None else table.arrays[place[0]].element


def _is_tied(view: Bits, views: dict[str, Bits]) -> bool:
    return any(same_memory(view, other) for other in views.values())
