"""What differs between the weights of two versions, tensor by tensor."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import CorruptError, InputError
from deltastore.format.digest import MODULUS, digest_text
from deltastore.format.dtypes import Dtype
from deltastore.format.records import record_key
from deltastore.format.seeds import tensor_seed
from deltastore.format.table import Array, TensorTable
from deltastore.history.lineage import read_lineage
from deltastore.history.pairs import VersionPair, open_pair
from deltastore.history.places import indexes_at
from deltastore.kernels.reference.digest import position_weights
from deltastore.kernels.reference.ordered import ordered, signed_step, step_magnitude
from deltastore.layout.watched import Progress
from deltastore.log import Log, Manifest
from deltastore.stores.base import Store

__all__ = [
    "ArrayDifference",
    "Comparison",
    "ElementDifference",
    "TensorDifference",
    "compare_versions",
    "only_in",
]

Bits = np.ndarray[Any, Any]

_LARGEST: Final = 5
"""How many of the largest steps are kept."""


@dataclass(frozen=True, slots=True)
class ElementDifference:
    """An element of ``tensor`` that differs: its bits, and the step between them in ordered-integer space."""

    tensor: str
    dtype: Dtype
    index: tuple[int, ...]
    before: int
    after: int
    step: int


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """A tensor that differs: ``changed`` of its elements, the largest step, and its digest's difference."""

    name: str
    elements: int
    changed: int
    largest: ElementDifference
    digest_difference: str


@dataclass(frozen=True, slots=True)
class ArrayDifference:
    """The tensors of one array that were compared, and those of them that differ."""

    pattern: str
    dtype: str
    tensors: int
    elements: int
    differing: tuple[TensorDifference, ...]

    @property
    def changed(self) -> int:
        """Elements that differ."""
        return sum(tensor.changed for tensor in self.differing)

    @property
    def largest(self) -> ElementDifference | None:
        """The largest step; None where nothing differs."""
        return max((one.largest for one in self.differing), key=lambda one: abs(one.step), default=None)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two versions. ``by_patches``: only chunks were read that some delta between them patches.

    ``missing`` tensors are the first version's alone, ``added`` ones the second's; also those of another
    shape or element type, which are in both. ``largest`` are the largest steps of all, the largest first.
    """

    before: Manifest
    after: Manifest
    by_patches: bool
    arrays: tuple[ArrayDifference, ...]
    missing: tuple[str, ...]
    added: tuple[str, ...]
    largest: tuple[ElementDifference, ...]

    @property
    def changed(self) -> int:
        """Elements that differ."""
        return sum(array.changed for array in self.arrays)

    @property
    def elements(self) -> int:
        """Elements that were compared."""
        return sum(array.elements for array in self.arrays)

    @property
    def equal(self) -> bool:
        """Whether what was compared has equal bits."""
        return not (self.changed or self.missing or self.added)


async def compare_versions(
    store: Store,
    before: int | None,
    after: int | None,
    *,
    only: str | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare two versions (None: the newest), all bits of all tensors, or of those that ``only`` names.

    ``only`` is a tensor's name, or a pattern of names with ``*``, ``?`` and ``[...]`` as in a shell. Where
    both grow from one anchor, chunks that no delta between them patches are equal and not read. The sum of
    the digests' differences is compared with what the manifests say.

    Raises ``NotFoundError``, ``CorruptError``, ``UnsupportedError``, ``InputError("unknown_tensor")``.
    """
    log = Log(store)
    records = [
        await (log.newest_manifest() if version is None else log.manifest(version))
        for version in (before, after)
    ]
    versions = [record.version for record in records]
    pair = await open_pair(await read_lineage(store, versions, min(versions)), *versions)
    missing, added = only_in(*pair.tables, only), only_in(*pair.tables[::-1], only)
    arrays = [_ArrayCount(array, _chosen(array, missing, only)) for array in pair.tables[0].arrays]
    if not (missing or added or any(one.chosen.any() for one in arrays)):
        raise InputError("unknown_tensor", f"neither version has a tensor like {only!r:.200}", where=only)
    await _count(pair, arrays, progress)
    found = [one.difference() for one in arrays if one.chosen.any()]
    if only is None and not missing and not added:
        _check_digests(records, arrays)
    every = [one for array in arrays for one in array.largest]
    largest = sorted(every, key=lambda one: -abs(one.step))[:_LARGEST]
    return Comparison(
        records[0], records[1], pair.by_patches, tuple(found), tuple(missing), tuple(added), tuple(largest)
    )


def only_in(here: TensorTable, there: TensorTable, only: str | None) -> list[str]:
    """Tensors that the other table has not, or has with another shape or type."""
    known = {tensor.name: (tensor.shape, tensor.dtype) for tensor in there.tensors()}
    return [
        tensor.name
        for tensor in here.tensors()
        if known.get(tensor.name) != (tensor.shape, tensor.dtype) and _named(tensor.name, only)
    ]


def _named(name: str, only: str | None) -> bool:
    return only is None or name == only or fnmatchcase(name, only)


def _chosen(array: Array, missing: Sequence[str], only: str | None) -> NDArray[np.bool_]:
    """Which members of an array are compared."""
    gone = set(missing)
    return np.array([name not in gone and _named(name, only) for name in array.names], np.bool_)


async def _count(pair: VersionPair, arrays: list[_ArrayCount], progress: Progress | None) -> None:
    """Compare every chunk that may differ and has a tensor that is asked for."""
    wanted = np.zeros(len(pair.chunks), np.bool_)
    total = done = 0
    for place, (array, chunk) in enumerate(pair.chunks.tolist()):
        box = arrays[array].array.grid.box(chunk)
        if arrays[array].chosen[box.slices[0]].any():
            wanted[place] = True
            total += box.elements * arrays[array].array.element.itemsize
    async with aclosing(pair.read(pair.chunks[wanted])) as chunks:
        async for array, chunk, before, after in chunks:
            await asyncio.to_thread(arrays[array].count, chunk, before, after)
            done += before.nbytes
            if progress is not None:
                progress(done, total)


class _ArrayCount:
    """What differs in one array. Memory: some numbers for each member."""

    def __init__(self, array: Array, chosen: NDArray[np.bool_]) -> None:
        self.array = array
        self.chosen = chosen
        self.largest: list[ElementDifference] = []
        self.digests = np.zeros(array.count, np.uint64)
        self._changed = np.zeros(array.count, np.int64)
        self._most: dict[int, ElementDifference] = {}
        self._seeds = np.array([tensor_seed(name) for name in array.names], np.uint64)

    def count(self, chunk: int, before: Bits, after: Bits) -> None:
        """Count what differs in a chunk, whose bits these are."""
        old, new = before.reshape(-1), after.reshape(-1)
        differing = np.flatnonzero(old != new)
        grid = self.array.grid
        members, flat = grid.locate(grid.box(chunk), differing)
        mine = self.chosen[members]
        members, flat, differing = members[mine], flat[mine], differing[mine]
        if not len(differing):
            return
        old, new = old[differing], new[differing]
        np.add.at(self._changed, members, 1)
        factors = position_weights(flat.astype(np.uint64)) * self._seeds[members]
        np.add.at(self.digests, members, (new.astype(np.uint64) - old.astype(np.uint64)) * factors)
        self._keep_largest(members, flat, old, new)

    def _keep_largest(self, members: Bits, flat: Bits, before: Bits, after: Bits) -> None:
        floating = self.array.element.floating
        steps = signed_step(ordered(before, floating=floating), ordered(after, floating=floating))
        sizes = step_magnitude(steps)
        order = np.argsort(sizes, kind="stable")[::-1]
        _, firsts = np.unique(members[order], return_index=True)
        for place in {*order[:_LARGEST].tolist(), *order[firsts].tolist()}:
            member = int(members[place])
            found = ElementDifference(
                self.array.names[member],
                self.array.element,
                indexes_at(self.array, int(flat[place])),
                *(int(before[place]), int(after[place]), int(steps[place])),
            )
            self.largest.append(found)
            if member not in self._most or abs(found.step) > abs(self._most[member].step):
                self._most[member] = found
        self.largest = sorted(self.largest, key=lambda one: -abs(one.step))[:_LARGEST]

    def difference(self) -> ArrayDifference:
        """All of it."""
        array = self.array
        differing = tuple(
            TensorDifference(
                array.names[member],
                array.elements_per_member,
                int(self._changed[member]),
                self._most[member],
                digest_text(int(self.digests[member])),
            )
            for member in np.flatnonzero(self._changed).tolist()
        )
        tensors = int(self.chosen.sum())
        return ArrayDifference(
            array.pattern, array.dtype, tensors, tensors * array.elements_per_member, differing
        )


def _check_digests(records: list[Manifest], arrays: list[_ArrayCount]) -> None:
    """All differences together must lead from the one digest to the other."""
    before, after = records
    found = sum(int(array.digests.sum(dtype=np.uint64)) for array in arrays) % MODULUS
    if (int(after.digest, 16) - int(before.digest, 16)) % MODULUS != found:
        where = record_key(after.slot)
        message = (
            f"versions {before.version} and {after.version} differ by {digest_text(found)} in their digests, "
            f"{where} says otherwise: validate the stream"
        )
        raise CorruptError("bad_digest", message, where=where, rule="DS062")
