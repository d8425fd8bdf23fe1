"""Live weights of which this process holds a part: boxes of tensors, seen through the stream's table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from deltastore.errors import InputError
from deltastore.format.table import TensorTable
from deltastore.kernels.pieces import Piece, Pieces
from deltastore.kernels.rows import ChunkList
from deltastore.layout.batches import READ_BYTES, chunks_in_order
from deltastore.layout.casting import Caster, caster_of, stands_for
from deltastore.layout.device import host_copy, is_on_device
from deltastore.layout.memory import bits_of, check_named, element_type, is_torch, place_of
from deltastore.layout.parts import Part, intersection, slices_at
from deltastore.layout.sharded import is_sharded, part_of_sharded

__all__ = ["HeldBox", "HeldPart", "LiveParts", "PartTensors", "is_in_parts"]

Bits = np.ndarray[Any, Any]
PartTensors = Mapping[str, Any]
"""Tensor name -> a whole tensor, a ``Part`` of it, a sequence of parts, or a torch ``DTensor``."""


@dataclass(frozen=True, slots=True)
class HeldBox:
    """A box of member ``member`` of array ``array`` over the tensor's axes."""

    array: int
    member: int
    lo: tuple[int, ...]
    size: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class HeldPart:
    """One part of tensor ``name``: where it belongs, the live ``tensor``, and how its bits are read."""

    name: str
    box: HeldBox
    tensor: Any
    view: Any
    caster: Caster | None

    def within(self, box: HeldBox) -> Bits:
        """The bits of a box that lies in the part."""
        return self.bits(slices_at(box.lo, box.size, self.box.lo))

    def bits(self, inner: tuple[slice, ...]) -> Bits:
        """The bits of a box of the part, relative to it."""
        if self.caster is not None:
            return self.caster(inner)
        part: Bits = self.view[inner]
        return host_copy(part) if is_on_device(part) else part

    def copy_to(self, copy: Bits) -> None:
        """Write all of its bits into an array of its size, a few mebibytes at a time."""
        if not copy.ndim:
            copy[()] = self.bits(())
            return
        step = max(READ_BYTES // max(copy[:1].nbytes, 1), 1)
        for start in range(0, len(copy), step):
            rows = slice(start, min(start + step, len(copy)))
            copy[rows] = self.bits((rows,))


class LiveParts:
    """Named parts of live tensors as a ``Portion``, read in place.

    ``cast=True`` lets F32 parts stand for BF16 or F16 tensors, as in ``LiveWeights``. Parts may not overlap.
    Raises ``InputError`` naming the first tensor that does not fit.
    """

    def __init__(self, table: TensorTable, tensors: PartTensors, *, cast: bool = False) -> None:
        check_named(tensors)
        self._table = table
        self._held: list[HeldPart] = []
        self._of: dict[tuple[int, int], list[int]] = {}
        self._places: list[tuple[str, Callable[[], Any], tuple[object, ...]]] = []
        for name, given in tensors.items():
            if is_sharded(given):
                self.watch(name, given.to_local)
            for part in _parts_of(name, given):
                self._take(name, part, cast)

    def _take(self, name: str, part: Part, cast: bool) -> None:
        array, member = _check_part(self._table, name, part, cast)
        if 0 in part.tensor.shape:
            return
        wanted = self._table.arrays[array].element
        is_cast = element_type(name, part.tensor).name == "F32" != wanted.name
        box = HeldBox(array, member, part.start, tuple(part.tensor.shape))
        view = bits_of(name, part.tensor)
        held = HeldPart(name, box, part.tensor, view, caster_of(part.tensor, wanted) if is_cast else None)
        self._of.setdefault((array, member), []).append(len(self._held))
        self._held.append(held)
        if is_torch(part.tensor):
            self.watch(name, lambda: part.tensor)
            base = part.tensor._base  # a view stays where its base was
            if base is not None:
                self.watch(name, lambda: base)

    def watch(self, name: str, tensor: Callable[[], Any]) -> None:
        """What ``tensor()`` gives must stay where it is; ``check_in_place`` sees to it."""
        self._places.append((name, tensor, place_of(tensor())))

    @property
    def table(self) -> TensorTable:
        """The stream's table."""
        return self._table

    @property
    def parts(self) -> tuple[HeldPart, ...]:
        """What is held, in the order in which it was given; no empty ones."""
        return tuple(self._held)

    def under(self, array: int, chunk: int) -> Iterator[tuple[int, HeldBox]]:
        """What is held of a chunk: numbers of ``parts``, each with the box of the chunk that it has."""
        box = self._table.arrays[array].grid.box(chunk)
        for member in range(box.start[0], box.start[0] + box.size[0]):
            for number in self._of.get((array, member), ()):
                held = self._held[number].box
                shared = intersection(held.lo, held.size, box.start[1:], box.size[1:])
                if shared is not None:
                    yield number, HeldBox(array, member, *shared)

    def assemble(self, array: int, chunk: int, bits_of: Callable[[int, HeldBox], Bits]) -> Bits:
        """A chunk in memory of its own; ``bits_of(part, box)`` gives the bits of a box of it.

        Of use where the parts are together the whole model: what nobody holds is left as it comes.
        """
        form = self._table.arrays[array]
        whole = form.grid.box(chunk)
        bits = np.empty(whole.size, form.element.storage)
        for part, box in self.under(array, chunk):
            member: Bits = bits[(box.member - whole.start[0], ...)]
            member[slices_at(box.lo, box.size, whole.start[1:])] = bits_of(part, box)
        return bits

    @property
    def boxes(self) -> tuple[HeldBox, ...]:
        """What is held, in the order in which it was given; no empty ones."""
        return tuple(held.box for held in self._held)

    @cached_property
    def chunks(self) -> ChunkList:
        """The chunks of which something is held, in pack order."""
        touched = [np.zeros(len(array.grid), bool) for array in self._table.arrays]
        for held in self._held:
            touched[held.box.array][_chunks_under(self._table, held.box)] = True
        every = chunks_in_order(self._table)
        first = np.cumsum([0, *(len(chunks) for chunks in touched)])
        flags = np.concatenate([np.zeros(0, bool), *touched])
        mine: ChunkList = every[flags[first[every["array"]] + every["chunk"]]]
        return mine

    @cached_property
    def pieces(self) -> Pieces | None:
        """Every part in its memory; None where one is cast, or not in the memory of the CPU."""
        if any(held.caster is not None or is_on_device(held.view) for held in self._held):
            return None
        return self._as_pieces((held.box, held.view) for held in self._held)

    async def gather(self, chunks: ChunkList) -> Pieces:
        """What is held of ``chunks``: views of live memory, or bits that were read for this call."""
        if self.pieces is not None:
            return self.pieces
        return self._as_pieces(part for chunk in chunks.tolist() for part in self._read(*chunk))

    def fill(self, copies: Sequence[Bits]) -> None:
        """Write the bits of every box of ``boxes`` into the array of its size at the same place."""
        for held, copy in zip(self._held, copies, strict=True):
            held.copy_to(copy)

    def check_in_place(self) -> None:
        """``InputError("wrong_memory")`` when the memory of a torch tensor has been replaced meanwhile."""
        for name, tensor, place in self._places:
            if place_of(tensor()) != place:
                raise InputError(
                    "wrong_memory",
                    f"tensor {name!r} has got other memory since it was given: open a new writer",
                    where=name,
                )

    def _as_pieces(self, parts: Iterable[tuple[HeldBox, Any]]) -> Pieces:
        return Pieces(
            self._table.kernels, (Piece(box.array, box.member, box.lo, view) for box, view in parts)
        )

    def _read(self, array: int, chunk: int) -> Iterator[tuple[HeldBox, Bits]]:
        for number, box in self.under(array, chunk):
            yield box, self._held[number].within(box)


def is_in_parts(given: object) -> bool:
    """Whether it is something else than a whole tensor."""
    return isinstance(given, Part | list | tuple) or is_sharded(given)


def _parts_of(name: str, given: Any) -> Sequence[Part]:
    if isinstance(given, Part):
        return (given,)
    if isinstance(given, list | tuple):
        if not all(isinstance(part, Part) for part in given):
            raise InputError("bad_argument", f"tensor {name!r}: give a tensor, a Part or Parts", where=name)
        return given
    if is_sharded(given):
        return part_of_sharded(name, given)
    element_type(name, given)  # says so when it is no tensor at all
    return (Part(given, tuple(given.shape), (0,) * len(given.shape)),)


def _check_part(table: TensorTable, name: str, part: Part, cast: bool) -> tuple[int, int]:
    place = table.places.get(name)
    if place is None:
        raise InputError("unknown_tensor", f"the stream has no tensor {name!r}; leave it out", where=name)
    array = table.arrays[place[0]]
    if part.shape != array.shape:
        message = f"tensor {name!r} is part of shape {list(part.shape)} where the stream has "
        raise InputError("wrong_shape", message + f"{list(array.shape)}", where=name)
    given = element_type(name, part.tensor)
    if given != array.element and not stands_for(given, array.element, cast):
        message = f"tensor {name!r} is {given.name} where the stream has {array.dtype}; "
        raise InputError("wrong_dtype", message + "cast it (cast=True does, from F32)", where=name)
    return place


def _chunks_under(table: TensorTable, box: HeldBox) -> Bits:
    """The numbers of the chunks of ``box``'s array that it has elements of."""
    grid = table.arrays[box.array].grid
    low, size = (box.member, *box.lo), (1, *box.size)
    axes = [
        np.arange(first // step, (first + length - 1) // step + 1)
        for first, length, step in zip(low, size, grid.chunk, strict=True)
    ]
    numbers = np.zeros(1, np.int64)
    for along, count in zip(axes, grid.counts, strict=True):
        numbers = (numbers[:, None] * count + along[None, :]).ravel()
    return numbers
