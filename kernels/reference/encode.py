"""From changes to patches, for many chunks in one call (SPEC sections "Patch" and "Digest")."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import InputError
from deltastore.kernels.pieces import KernelTable, Pieces
from deltastore.kernels.reference.digest import position_weights
from deltastore.kernels.reference.held import HeldChunk
from deltastore.kernels.reference.patch import EncodedPatch, encode_patch
from deltastore.kernels.reference.staged import staged_chunks
from deltastore.kernels.rows import ROW, ChunkList, EncodedPatches, ListedChanges, StagedBits

__all__ = ["difference", "encode_changed", "encode_listed"]

Bits = np.ndarray[Any, Any]


def encode_changed(new: Pieces, old: Pieces, chunks: ChunkList) -> EncodedPatches:
    """Every changed element of ``chunks`` that ``new`` holds, as patches; one call for a whole pack.

    ``new`` and ``old`` are of one table; an element's old bits are taken from the first of ``old``'s pieces
    that holds it. ``chunks`` (n,) of dtype ``CHUNK``, each once; rows come in its order, and a chunk without
    changes has none. The raw form is allowed where ``new`` holds the whole chunk. No element of ``new`` is
    read twice to two ends: what a patch writes, its digest difference and its row come from one reading, so
    weights that move meanwhile make a version that mixes two moments, but none that contradicts itself.

    Raises InputError: ``wrong_memory`` when an element of ``new`` stands in two of its pieces, or ``old``
    does not hold it; ``bad_argument`` for a chunk that the table has not.
    O(elements of the chunks); memory beyond the result: a few chunks for each thread.
    """
    entries = []
    for array, chunk in chunks.tolist():
        _check_chunk(new.table, array, chunk)
        after, held = _held_once(new, array, chunk)
        before, known = HeldChunk(old, array, chunk).gather()
        if bool((held & ~known).any()):
            raise InputError(
                "wrong_memory", f"chunk {chunk} of array {array}: the old weights lack a part of the new ones"
            )
        positions = np.flatnonzero(held & (before != after)).astype(np.uint32)
        if len(positions):
            whole = after if held.all() else None
            entries.append(
                _entry(new.table, array, chunk, positions, before[positions], after[positions], whole)
            )
    return _together(entries)


def encode_listed(table: KernelTable, changes: ListedChanges, whole: Pieces | None = None) -> EncodedPatches:
    """The elements that a detector lists, as patches: ``changes.new`` of any chunks, each once.

    ``changes.old`` holds the bits before, uint8, laid out as ``changes.new.bits``.

    An element whose bits are the same before and after is written all the same. A chunk of no elements has
    no row. The raw form is allowed for a chunk that ``whole`` holds entirely: its bits are the new ones then.

    Raises InputError ``bad_argument`` when positions do not ascend strictly or leave their chunk.
    O(listed elements); memory beyond the result: a few chunks for each thread.
    """
    before = StagedBits(
        changes.new.chunks, changes.new.starts, changes.new.positions, changes.new.offsets, changes.old
    )
    pairs = zip(staged_chunks(table, changes.new), staged_chunks(table, before), strict=True)
    entries = []
    for ((array, chunk), (positions, new)), (_, (_, old)) in pairs:
        if len(positions):
            bits, held = (None, None) if whole is None else HeldChunk(whole, array, chunk).gather()
            raw = bits if held is not None and bool(held.all()) else None
            entries.append(_entry(table, array, chunk, positions, old, new, raw))
    return _together(entries)


def difference(
    table: KernelTable, array: int, chunk: int, positions: NDArray[np.uint32], old: Bits, new: Bits
) -> int:
    """``sum of (new - old) * w`` over chunk-relative ``positions``, 0..2**64 - 1 (SPEC section "Digest")."""
    grid = table.arrays[array].grid
    members, flat = grid.locate(grid.box(chunk), positions)
    factors = position_weights(flat.astype(np.uint64)) * table.seeds(array)[members]
    change = new.astype(np.uint64) - old.astype(np.uint64)
    return int((change * factors).sum(dtype=np.uint64))


def _held_once(pieces: Pieces, array: int, chunk: int) -> tuple[Bits, NDArray[np.bool_]]:
    held_chunk = HeldChunk(pieces, array, chunk)
    bits, held = held_chunk.gather()
    if held_chunk.held_elements != int(held.sum()):
        raise InputError("wrong_memory", f"chunk {chunk} of array {array}: two pieces hold one element")
    return bits, held


def _check_chunk(table: KernelTable, array: int, chunk: int) -> None:
    if array >= len(table.arrays) or chunk >= len(table.arrays[array].grid):
        raise InputError("bad_argument", f"the table has no chunk {chunk} of array {array}")


def _entry(
    table: KernelTable,
    array: int,
    chunk: int,
    positions: NDArray[np.uint32],
    old: Bits,
    new: Bits,
    whole: Bits | None,
) -> tuple[tuple[int, int, int, int], EncodedPatch]:
    form = table.arrays[array]
    patch = encode_patch(form, form.grid.box(chunk).elements, positions, old, new, whole)
    return (array, chunk, difference(table, array, chunk, positions, old, new), len(positions)), patch


def _together(entries: list[tuple[tuple[int, int, int, int], EncodedPatch]]) -> EncodedPatches:
    rows = np.zeros(len(entries), ROW)
    for number, ((array, chunk, change, _), patch) in enumerate(entries):
        rows[number] = (array, chunk, len(patch.data), patch.count, patch.encoding, change, bytes(16))
    body = np.frombuffer(b"".join(patch.data for _, patch in entries), np.uint8)
    return EncodedPatches(rows, body, np.array([entry[0][3] for entry in entries], np.uint32))
