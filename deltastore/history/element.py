"""The history of one element: its value at every version that wrote it, and the bytes that say so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from deltastore.format.anatomy import dissect
from deltastore.format.dtypes import Dtype
from deltastore.format.numbers import bits_text, number_text
from deltastore.format.pack import PackIndex
from deltastore.format.patch import Encoding
from deltastore.format.records import DeltaRecord, MetadataValue
from deltastore.format.table import Array, TensorTable
from deltastore.history.lineage import Deltas, Family, Lineage, read_lineage
from deltastore.history.places import ElementName, ElementPlace
from deltastore.kernels.reference.ordered import ordered, signed_step
from deltastore.kernels.reference.patch import decode_patch
from deltastore.kernels.rows import Octets, StagedBits, chunk_list
from deltastore.log import Manifest
from deltastore.replay import read_table
from deltastore.stores.base import Store
from deltastore.windows.cutting import Window
from deltastore.windows.patches import FetchedBatch
from deltastore.windows.walk import Walk, Watch, Weights

__all__ = ["ElementHistory", "Event", "element_history"]


@dataclass(frozen=True, slots=True)
class Event:
    """A version that wrote the element.

    ``bits`` are the new ones, ``step`` how far they are from the base's in ordered-integer space (None in an
    anchor). They stand in object ``key``: in an anchor from byte ``offset`` on; else in the patch of index
    row ``row``, which starts at ``patch_offset`` and has the residue, of ``width`` bits, from bit ``bit`` of
    byte ``offset`` on. ``run`` is the number of that run; None where the patch is raw.
    """

    version: int
    trainer_step: MetadataValue
    base: int | None
    bits: int
    step: int | None
    key: str
    offset: int
    bit: int
    width: int
    row: int | None = None
    run: int | None = None
    patch_offset: int | None = None

    def as_json(self, dtype: Dtype) -> dict[str, Any]:
        """Plain values, ready for JSON; the value as text, since JSON has neither NaN nor 64 bits."""
        return {
            "version": self.version,
            "kind": "anchor" if self.base is None else "delta",
            "base": self.base,
            "trainer_step": self.trainer_step,
            "value": number_text(dtype, self.bits),
            "bits": bits_text(dtype, self.bits),
            "step": self.step,
            "object": self.key,
            "row": self.row,
            "patch_offset": self.patch_offset,
            "run": self.run,
            "offset": self.offset,
            "bit": self.bit,
            "width": self.width,
        }


@dataclass(frozen=True, slots=True)
class ElementHistory:
    """An element, and every version that wrote it, ascending.

    ``skipped`` versions were stored whole from tensors among which there is no such element.
    """

    tensor: str
    dtype: Dtype
    shape: tuple[int, ...]
    place: ElementPlace
    events: tuple[Event, ...]
    versions: int
    skipped: tuple[int, ...]


async def element_history(store: Store, name: ElementName) -> ElementHistory:
    """Every version that wrote the element, from the first one on.

    Its chunk is carried through all versions, one anchor after another. Fetches the indexes of packs whose
    slabs have the chunk, and the patches of the chunk; of anchors the metadata, and the chunk or an object of
    1 MiB that has it. Memory: some numbers for each version, a few indexes, and the chunk for each branch.

    Raises ``InputError`` (``unknown_tensor``, ``bad_argument``) as the newest version has it, and
    ``NotFoundError``, ``CorruptError``, ``UnsupportedError``.
    """
    lineage = await read_lineage(store)
    table = await read_table(store, lineage.known[lineage.chosen[-1]].table)
    place = name.of(table)
    array = table.arrays[place.array]
    named = ElementName(name.tensor, place.index)
    grown = {family.anchor: family for family in lineage.families()}
    events: list[Event] = []
    skipped: list[int] = []
    for version, one in lineage.known.items():
        if one.base is not None:
            continue
        family = grown.get(version, Family(version, {}))
        if one.table != table.sha256:
            table = await read_table(store, one.table)
        there = _same(named, array, table)
        if there is None:
            skipped += [version, *family.bases]
        else:
            events += await _events(lineage, family, table, there)
    return ElementHistory(
        *(name.tensor, array.element, array.shape, place),
        tuple(sorted(events, key=lambda event: event.version)),
        len(lineage.known),
        tuple(sorted(skipped)),
    )


def _same(name: ElementName, array: Array, table: TensorTable) -> ElementPlace | None:
    """Where the element is under another table; None where that has no such tensor."""
    if name.tensor not in table.places:
        return None
    other = table.arrays[table.places[name.tensor][0]]
    return name.of(table) if (other.dtype, other.shape) == (array.dtype, array.shape) else None


async def _events(lineage: Lineage, family: Family, table: TensorTable, place: ElementPlace) -> list[Event]:
    """What the versions of one family wrote."""
    deltas = _OfChunk(lineage, family, table, place)
    chunks = chunk_list([place.array], [place.chunk])
    walk = await lineage.walk(table, deltas, chunks=chunks)
    try:
        anchor = await lineage.record(family.anchor)
        within = _Within(deltas, walk, *await walk.portion.locate(place.array, place.chunk), anchor)
        await walk.over(0, within)
    finally:
        walk.close()
    return within.events


class _OfChunk(Deltas):
    """Deltas with those packs alone that may have the element's chunk.

    ``trainer_steps`` by the number of the step; ``rows``: the number of the chunk's row, by pack.
    """

    def __init__(self, lineage: Lineage, family: Family, table: TensorTable, place: ElementPlace) -> None:
        super().__init__(lineage, family)
        self.table = table
        self.place = place
        self.trainer_steps: dict[int, MetadataValue] = {}
        self.rows: dict[str, int] = {}
        self._slab = int(table.arrays[place.array].slabs(np.array([place.chunk]), table.slabs)[0])

    async def record(self, step: int) -> DeltaRecord | None:
        """The manifest of a step, without packs of other slabs."""
        record = await super().record(step)
        if record is None:
            return None
        self.trainer_steps[step] = record.metadata.get("step")
        packs = tuple(pack for pack in record.packs if pack.slabs[0] <= self._slab <= pack.slabs[1])
        return record.model_copy(update={"packs": packs})

    def indexed(self, step: int, index: PackIndex) -> None:  # noqa: ARG002
        """Find the chunk's row."""
        mine = (index.rows["array"] == self.place.array) & (index.rows["chunk"] == self.place.chunk)
        for row in np.flatnonzero(mine).tolist():
            self.rows[index.where] = row


class _Within(Watch):
    """What is written at the element's place; the anchor's chunk starts at byte ``offset`` of ``key``."""

    def __init__(self, deltas: _OfChunk, walk: Walk, key: str, offset: int, anchor: Manifest) -> None:
        self._deltas = deltas
        self._walk = walk
        self._anchored = (key, offset, anchor)
        self._array = walk.table.arrays[deltas.place.array]
        self.events: list[Event] = []

    def begun(self, window: Window, weights: Weights) -> None:  # noqa: ARG002
        """What the anchor has."""
        place, array = self._deltas.place, self._array
        key, offset, anchor = self._anchored
        starts = array.grid.box(place.chunk).start
        within = [at - low for at, low in zip((place.member, *place.index), starts, strict=True)]
        # A chunk that reaches over the end of its array is stored whole.
        stored = int(np.ravel_multi_index(within, array.chunk))
        self.events.append(
            Event(
                *(anchor.version, anchor.metadata.get("step"), None, self._bits(weights), None, key),
                *(offset + stored * array.element.itemsize, 0, array.element.bits),
            )
        )

    def fits(self, fetched: FetchedBatch, weights: Weights, staged: StagedBits) -> None:
        """What a patch writes at the element's position, if it does: a batch has one patch of a chunk."""
        position = self._deltas.place.position
        at = int(np.searchsorted(staged.positions, position))
        if at == len(staged.positions) or staged.positions[at] != position:
            return
        element = self._array.element
        new = staged.bits.view(element.storage)[at : at + 1]
        old = np.array([self._bits(weights)], element.storage)
        step = signed_step(*(ordered(bits, floating=element.floating) for bits in (old, new)))
        number, batch = fetched.batch.step, fetched.batch
        version = self._walk.course.steps[number].version
        key = self._walk.names.pack(number, batch.pack)
        offset, bit, width, run = self._where(batch.rows[0], fetched.body)
        self.events.append(
            Event(
                version=version,
                trainer_step=self._deltas.trainer_steps[number],
                base=self._deltas.family.bases[version],
                bits=int(new[0]),
                step=int(step[0]),
                key=key,
                offset=offset,
                bit=bit,
                width=width,
                row=self._deltas.rows[key],
                run=run,
                patch_offset=int(batch.rows["offset"][0]),
            )
        )

    def _bits(self, weights: Weights) -> int:
        place = self._deltas.place
        return int(weights.chunks[place.array, place.chunk].reshape(-1)[place.position])

    def _where(self, row: Any, body: Octets) -> tuple[int, int, int, int | None]:
        """Byte of the pack, bit, width and run of the residue that a patch has for the element."""
        place, element = self._deltas.place, self._array.element
        elements, start = self._array.grid.box(place.chunk).elements, int(row["offset"])
        if int(row["encoding"]) == Encoding.RAW:
            return start + place.position * element.itemsize, 0, element.bits, None
        decoded = decode_patch(body.data, int(row["encoding"]), element, elements)
        parts = dissect(body, int(row["encoding"]), elements, element.bits)
        for number, run in enumerate(decoded.runs):
            at = int(np.searchsorted(run.positions, place.position))
            residues = parts.runs[number].residues
            if at < len(run.positions) and run.positions[at] == place.position and residues is not None:
                byte, bit = divmod(at * run.width, 8)
                return start + residues.start + byte, bit, run.width, number
        raise ValueError("a position that is in no run")
