"""A dump of the parameters that one process of an engine holds, seen through its layout."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltastore.checkpoints.checkpoint import Checkpoint
from deltastore.checkpoints.header import StoredTensor
from deltastore.checkpoints.refusal import bad_checkpoint, cannot
from deltastore.checkpoints.tensor_file import TensorFile
from deltastore.errors import InputError
from deltastore.format.table import TensorTable
from deltastore.kernels.cpu import digest_chunks
from deltastore.kernels.pieces import Piece, Pieces
from deltastore.kernels.rows import ChunkList
from deltastore.layout.held import Held, boxes_of
from deltastore.layout.meeting import BoxIndex
from deltastore.layout.parts import slices_at
from deltastore.layout.pieces import Layout, Param
from deltastore.layout.shard_boxes import HeldBox, ShardBoxes
from deltastore.validate.live.report import Apart
from deltastore.validate.live.sources import Chunks, Look, first_apart

__all__ = ["MappedTensors", "ParameterSource"]

Bits = np.ndarray[Any, Any]

_HALVES = np.dtype([("low", "<u2"), ("high", "<u2")])
_TIED_BYTES = 4 << 20


class ParameterSource:
    """A dump with every parameter of ``layout`` by name.

    The files are mapped, and must not be cut meanwhile; what was looked at is given back after each window.
    Raises ``InputError``: what ``ShardBoxes`` does, and for parameters that are not the layout's
    ``missing_tensor``, ``unknown_tensor``, ``wrong_shape``, ``wrong_dtype``.
    """

    def __init__(self, name: str, table: TensorTable, checkpoint: Checkpoint, layout: Layout) -> None:
        self.name = name
        self.table = table
        self._layout = layout
        self._boxes = ShardBoxes(table, layout)
        self.held = Held(table, boxes_of(self._boxes))
        given = {spec.name: spec for spec in checkpoint.tensors}
        for param in layout.params:
            _check_param(name, layout, param, given)
        for other in given:
            layout.param(other)
        self._files = MappedTensors(checkpoint)
        self.forms = {param.name: self._files.bits(param.name).reshape(param.form) for param in layout.params}
        self._ties = [other for other in given if other not in layout.forms]
        self.holes = sum(param.elements for param in layout.params) - layout.elements
        self.copies = sum(box.piece.elements for box in self._boxes.every) - self.held.elements
        self.copies += sum(layout.param(other).elements for other in self._ties)

    def close(self) -> None:
        """Give the files back."""
        self.forms.clear()
        self.__dict__.pop("once", None)
        self._files.close()

    def strays(self) -> Iterator[str]:
        """Parameters that are dumped by themselves, and are not the ones that they are tied to."""
        for other in self._ties:
            first, second = self._files.octets(other), self._files.octets(self._layout.param(other).name)
            if len(first) != len(second) or not all(
                np.array_equal(first[at : at + _TIED_BYTES], second[at : at + _TIED_BYTES])
                for at in range(0, len(first), _TIED_BYTES)
            ):
                yield other

    async def look(self, chunks: ChunkList) -> Look:
        """Chunks where they stand."""
        return _Standing(self, chunks)

    @cached_property
    def once(self) -> Pieces:
        """One place of every element held: what digests are of."""
        pieces = (
            Piece(
                box.array,
                box.member,
                box.lo,
                _upper(self.view(box)) if self.is_widened(box) else self.view(box),
            )
            for box in self._boxes.once
        )
        return Pieces(self.table.kernels, pieces)

    def view(self, box: HeldBox) -> Bits:
        """The elements of the parameter that a box stands in, in the order of the tensor's axes."""
        view: Bits = box.piece.narrowed(box.lo, box.size).view_of(self.forms[box.piece.param])
        return view

    def is_widened(self, box: HeldBox) -> bool:
        """Whether F32 elements stand there for BF16 ones."""
        param = self._layout.forms[box.piece.param]
        return param.dtype.itemsize != self.table.arrays[box.array].element.itemsize

    @cached_property
    def every(self) -> dict[tuple[int, int], tuple[list[HeldBox], BoxIndex]]:
        """(array, member) -> its boxes, copies too, and which of them meet another."""
        found: dict[tuple[int, int], list[HeldBox]] = {}
        for box in self._boxes.every:
            found.setdefault((box.array, box.member), []).append(box)
        return {
            place: (boxes, BoxIndex([(box.lo, box.size) for box in boxes])) for place, boxes in found.items()
        }

    def forget(self) -> None:
        """Give back memory of what was looked at."""
        self._files.forget()


def _upper(view: Bits) -> Bits:
    return view.view(_HALVES)["high"]


class _Standing:
    """Chunks of a dump of parameters."""

    def __init__(self, source: ParameterSource, chunks: ChunkList) -> None:
        self._source = source
        self._chunks = chunks

    def digests(self) -> NDArray[np.uint64]:
        """Of one place of each element."""
        return digest_chunks(self._source.once, self._chunks)

    def apart(self, chunks: Chunks, differing: NDArray[np.bool_]) -> Iterator[Apart]:  # noqa: ARG002
        """Bit by bit in every place, the lower halves of widened elements too."""
        source = self._source
        for array, chunk in self._chunks.tolist():
            form = source.table.arrays[array]
            box = form.grid.box(chunk)
            for offset in range(box.size[0]):
                boxes, index = source.every.get((array, box.start[0] + offset), ([], None))
                for number, (lo, size) in () if index is None else index.meeting(box.start[1:], box.size[1:]):
                    held = HeldBox(array, box.start[0] + offset, lo, size, boxes[number].piece)
                    place: Any = (offset, *slices_at(lo, size, box.start[1:]), ...)
                    stored = chunks[array, chunk][place]
                    if source.is_widened(held):
                        stored = stored.astype("<u4") << np.uint32(16)
                    found = first_apart(source.view(held), stored)
                    if found is not None:
                        count, at, values = found
                        where = tuple(low + inner for low, inner in zip(lo, at, strict=True))
                        tensor = form.names[held.member]
                        yield Apart(source.name, tensor, held.piece.param, count, where, *values)
        source.forget()


class MappedTensors:
    """The tensors of a checkpoint as views of its mapped files."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._maps: dict[Path, mmap.mmap] = {}

    def octets(self, name: str) -> NDArray[np.uint8]:
        """The bytes of a tensor."""
        file, stored = self._checkpoint.locate(name)
        if not stored.spec.nbytes:
            return np.zeros(0, np.uint8)
        mapped = self._maps.get(file.path)
        if mapped is None:
            mapped = self._maps[file.path] = _map(file)
        start = file.data_start + stored.begin
        if start + stored.spec.nbytes > len(mapped):
            raise bad_checkpoint(file.path, "it was cut short while it was read; copy it again")
        return np.frombuffer(mapped, np.uint8, stored.spec.nbytes, start)

    def bits(self, name: str) -> Bits:
        """The elements of a tensor, row-major."""
        stored: StoredTensor = self._checkpoint.locate(name)[1]
        return self.octets(name).view(stored.spec.dtype.storage)

    def forget(self) -> None:
        """Pages that were read may go."""
        for mapped in self._maps.values():
            mapped.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Give the maps back, as soon as no view needs them."""
        self._maps.clear()


def _map(file: TensorFile) -> mmap.mmap:
    try:
        with file.path.open("rb") as opened:
            return mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError):
            raise cannot("map", file.path, error) from None
        raise bad_checkpoint(file.path, "it is empty now; copy it again") from None


def _check_param(name: str, layout: Layout, param: Param, given: dict[str, Any]) -> None:
    spec = given.get(param.name)
    if spec is None:
        raise InputError(
            "missing_tensor",
            f"{name} has no parameter {param.name!r}, which layout {layout.name} has: give all of its "
            f"{len(layout.params)}",
            where=param.name,
        )
    if spec.shape != param.shape:
        raise InputError(
            "wrong_shape",
            f"parameter {param.name!r} has shape {list(spec.shape)} in {name}, where layout {layout.name} "
            f"has {list(param.shape)}",
            where=param.name,
        )
    if spec.dtype != param.dtype:
        raise InputError(
            "wrong_dtype",
            f"parameter {param.name!r} is {spec.dtype.name} in {name}, where layout {layout.name} has "
            f"{param.dtype.name}",
            where=param.name,
        )
