"""From changes to patches at memory speed (SPEC sections "Patch" and "Digest")."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from deltastore.errors import InputError
from deltastore.kernels.cpu import _native
from deltastore.kernels.cpu.arguments import chunk_numbers
from deltastore.kernels.cpu.instructions import Instructions
from deltastore.kernels.cpu.prepared import prepared_pieces, prepared_table
from deltastore.kernels.pieces import KernelTable, Pieces
from deltastore.kernels.rows import ROW, ChunkList, EncodedPatches, ListedChanges
from deltastore.kernels.threads import checked_threads

__all__ = ["encode_changed", "encode_listed"]

_REFUSALS: Final = {
    1: ("bad_argument", "the table has no chunk {chunk} of array {array}"),
    2: ("bad_argument", "chunk {chunk} of array {array}: more than 2**20 elements; cut the array finer"),
    3: ("bad_argument", "chunk {chunk} of array {array}: no digest seed for one of its members"),
    4: ("wrong_memory", "chunk {chunk} of array {array}: two pieces hold one element"),
    5: ("wrong_memory", "chunk {chunk} of array {array}: the old weights lack a part of the new ones"),
    6: ("bad_argument", "positions in chunk {chunk} of array {array} do not ascend"),
}


def encode_changed(
    new: Pieces,
    old: Pieces,
    chunks: ChunkList,
    *,
    threads: int = 1,
    instructions: Instructions = Instructions.BEST,
) -> EncodedPatches:
    """Every changed element of ``chunks`` that ``new`` holds, as patches; one call for a whole pack.

    ``new`` and ``old`` are of one table; an element's old bits are taken from the first of ``old``'s pieces
    that holds it. ``chunks`` (n,) of dtype ``CHUNK``, each once; rows come in its order, and a chunk without
    changes has none. The raw form is allowed where ``new`` holds the whole chunk. What a patch writes, its
    digest difference and its row come from one reading of ``new``, which others may write to meanwhile. The
    bytes are the reference's, whatever ``threads`` and ``instructions`` are; the GIL is released.

    Raises InputError: ``wrong_memory`` when an element of ``new`` stands in two of its pieces, or ``old``
    does not hold it; ``bad_argument`` for a chunk that the table has not, or of more than 2**20 elements.
    O(elements of the chunks); memory beyond the result: a few chunks for each thread.
    """
    if new.table is not old.table and new.table.arrays != old.table.arrays:
        raise InputError("bad_argument", "new and old pieces are of different tables; give those of one")
    found = _native.encode_changed(
        prepared_pieces(new, seeds=True),
        prepared_pieces(old),
        chunk_numbers(chunks),
        checked_threads(threads),
        int(instructions),
    )
    return _patches(found, chunks)


def encode_listed(
    table: KernelTable,
    changes: ListedChanges,
    whole: Pieces | None = None,
    *,
    threads: int = 1,
    instructions: Instructions = Instructions.BEST,
) -> EncodedPatches:
    """The elements that a detector lists, as patches. ``changes.old`` is laid out as ``changes.new.bits``.

    An element whose bits are the same before and after is written all the same. A chunk of no elements has
    no row. The raw form is allowed for a chunk that ``whole`` holds entirely: its bits are the new ones then.
    The bytes are the reference's, whatever ``threads`` and ``instructions`` are; the GIL is released.

    Raises InputError ``bad_argument`` when positions do not ascend strictly or leave their chunk, when the
    table has not the chunk, or when ``starts`` and ``offsets`` lead out of what they index.
    O(listed elements); memory beyond the result: a few chunks for each thread.
    """
    if whole is not None and whole.table is not table and whole.table.arrays != table.arrays:
        raise InputError("bad_argument", "pieces and changes are of different tables; give those of one")
    _check_listed(table, changes)
    new = changes.new
    found = _native.encode_listed(
        prepared_table(table, seeds=True),
        chunk_numbers(new.chunks),
        np.ascontiguousarray(new.starts, np.int64),
        np.ascontiguousarray(new.positions, np.uint32),
        np.ascontiguousarray(new.offsets, np.int64),
        np.ascontiguousarray(new.bits, np.uint8),
        np.ascontiguousarray(changes.old, np.uint8),
        None if whole is None else prepared_pieces(whole),
        checked_threads(threads),
        int(instructions),
    )
    return _patches(found, new.chunks)


def _check_listed(table: KernelTable, changes: ListedChanges) -> None:
    """Every range that ``starts`` and ``offsets`` name lies in the arrays that they index."""
    new = changes.new
    count = len(new.chunks)
    starts = np.asarray(new.starts, np.int64)
    if starts.shape != (count + 1,) or np.shape(new.offsets) != (count + 1,):
        raise InputError("bad_argument", f"{count} chunks need {count + 1} starts and offsets")
    if bool((starts < 0).any()) or bool((starts[1:] < starts[:-1]).any()) or starts[-1] > len(new.positions):
        raise InputError("bad_argument", "starts lead out of the positions, or descend")
    sizes = np.array([*(array.itemsize for array in table.arrays), 0], np.int64)
    offsets = np.asarray(new.offsets, np.int64)[:-1]
    lengths = np.diff(starts) * sizes[np.minimum(new.chunks["array"].astype(np.int64), len(sizes) - 1)]
    room = min(len(new.bits), len(changes.old))
    if bool((offsets < 0).any()) or bool((offsets > room).any()) or bool((lengths > room - offsets).any()):
        raise InputError("bad_argument", "offsets lead out of the new or the old bits")


def _patches(found: tuple[int, int, Any, Any, Any], chunks: ChunkList) -> EncodedPatches:
    refusal, number, rows, body, changed = found
    if refusal:
        code, words = _REFUSALS[refusal]
        array, chunk = chunks[number].tolist()
        raise InputError(code, words.format(array=array, chunk=chunk))
    return EncodedPatches(rows.view(ROW), body, changed)
