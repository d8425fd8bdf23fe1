"""From patches to weights in C++ (SPEC sections "Patch" and "Applying a version").

The contract is ``deltastore.kernels.reference.apply``. Everywhere ``threads`` is the number of threads, which
live for the call; neither it nor ``instructions`` changes a result, or which row is refused. The GIL is
released.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import InputError, PatchError
from deltastore.kernels.cpu import _native
from deltastore.kernels.cpu.instructions import Instructions
from deltastore.kernels.cpu.prepared import prepared_pieces, prepared_table
from deltastore.kernels.cpu.staged import layout_of, native_staged
from deltastore.kernels.pieces import KernelTable, Pieces
from deltastore.kernels.rows import (
    REASONS,
    ROW,
    RULE_OF,
    Octets,
    Rows,
    StagedBits,
    check_pack,
    chunks_of,
    places_of,
)
from deltastore.kernels.threads import checked_threads

__all__ = ["apply", "check", "mismatches", "resolve", "scatter"]

_WRITABLE = "cpu writable"


def check(
    table: KernelTable,
    rows: Rows,
    body: Octets,
    *,
    threads: int = 1,
    instructions: Instructions = Instructions.BEST,
) -> None:
    """Every rule that a patch can break by itself (DS030 to DS034), for all patches of a pack.

    ``rows`` (R,) of dtype ``ROW``, ``body`` their patches. Neither weights nor ``difference`` nor ``check``
    are looked at. Raises PatchError (code ``bad_patch``) for the first bad row. O(body + elements written);
    memory: one chunk's positions for each thread, whatever the rows say.
    """
    verdict = _native.check(
        prepared_table(table),
        *_octets_of(rows, body),
        checked_threads(threads),
        instructions,
    )
    _raise(verdict)


def resolve(
    pieces: Pieces,
    rows: Rows,
    body: Octets,
    under: StagedBits | None = None,
    *,
    threads: int = 1,
    instructions: Instructions = Instructions.BEST,
) -> tuple[StagedBits, NDArray[np.uint64]]:
    """Work out the new bits of every element of the patches that ``pieces`` hold; nothing is written.

    ``under``: new bits that are staged already, but not written: they count as standing in memory. Where
    several pieces hold an element it must fit in all of them, and the first one's bits count. Returns the
    staged bits, one entry for each row in their order, and for each row the digest difference of its held
    elements (uint64 ``(R,)``): that is its ``difference`` where all of the patch's elements are held.

    Rows are of distinct chunks. Raises PatchError for the first row that breaks a rule or does not fit the
    current weights (DS036), InputError ``bad_argument`` when positions of ``under`` do not ascend strictly or
    leave their chunk. O(body + elements written); memory beyond the result: a few chunks for each thread.
    """
    table = pieces.table
    threads = checked_threads(threads)
    known = None if under is None else native_staged(table, under, threads)
    octets, body = _octets_of(rows, body)
    under_rows = np.zeros(0, np.int64) if under is None else _entries_of(rows, under)
    native = prepared_pieces(pieces, seeds=True)
    counts = np.zeros(len(rows), np.int64)
    # A row that is refused here may stand behind one that does not fit, which only resolving tells.
    refused = _native.count_held(native, octets, body, counts, threads, instructions)
    ready = refused[0] if refused[1] else len(rows)
    starts, offsets = layout_of(table, rows["array"], counts)
    positions, bits = np.empty(starts[ready], np.uint32), np.empty(offsets[ready], np.uint8)
    differences = np.zeros(len(rows), np.uint64)
    verdict = _native.resolve(
        native,
        octets[: ready * ROW.itemsize],
        body,
        known,
        under_rows,
        starts,
        offsets,
        positions,
        bits,
        differences,
        threads,
        instructions,
    )
    _raise(verdict)
    _raise(refused)
    return StagedBits(chunks_of(rows), starts, positions, offsets, bits), differences


def scatter(pieces: Pieces, new: StagedBits, *, threads: int = 1) -> None:
    """Write the staged bits, in every piece that holds the element; elements that none holds are left out.

    Nothing is written outside the pieces' boxes, whatever ``new`` says. O(n). Raises InputError before the
    first write: ``bad_argument`` when positions do not ascend strictly or leave their chunk, ``wrong_memory``
    when a piece is read-only.
    """
    _check_writable(pieces)
    threads = checked_threads(threads)
    _native.scatter(prepared_pieces(pieces), native_staged(pieces.table, new, threads), threads)


def mismatches(pieces: Pieces, new: StagedBits, *, threads: int = 1) -> int:
    """How many elements in memory differ from what ``scatter`` writes there: 0 right after it.

    Raises InputError ``bad_argument`` when positions do not ascend strictly or leave their chunk.
    """
    threads = checked_threads(threads)
    return _native.mismatches(prepared_pieces(pieces), native_staged(pieces.table, new, threads), threads)


def apply(
    pieces: Pieces,
    rows: Rows,
    body: Octets,
    *,
    threads: int = 1,
    instructions: Instructions = Instructions.BEST,
) -> None:
    """Write patches straight into memory; all of them are checked as by ``check`` before the first write.

    Rows are of distinct chunks. Raises PatchError for the first row that does not fit the current weights:
    nothing of that row stays written (it is taken back where writing had begun), of the others any may be.
    Doing it again is harmless. Where several pieces hold an element, what each gets follows from its own
    bits. O(body + elements written); memory: a few chunks for each thread. Raises InputError
    ``wrong_memory`` when a piece is read-only.
    """
    _check_writable(pieces)
    verdict = _native.apply(
        prepared_pieces(pieces),
        *_octets_of(rows, body),
        checked_threads(threads),
        instructions,
    )
    _raise(verdict)


def _octets_of(rows: Rows, body: Octets) -> tuple[Octets, Octets]:
    """Rows and body as contiguous bytes, once they are of the right types."""
    check_pack(rows, body)
    return np.ascontiguousarray(rows).view(np.uint8), np.ascontiguousarray(body)


def _raise(verdict: tuple[int, int]) -> None:
    row, reason = verdict
    if reason:
        raise PatchError(row, REASONS[reason], RULE_OF[REASONS[reason]])


def _entries_of(rows: Rows, under: StagedBits) -> NDArray[np.int64]:
    """For every row the entry of ``under`` of the same chunk, or -1: int64 ``(R,)``."""
    known, wanted = places_of(under.chunks), places_of(chunks_of(rows))
    if not len(known):
        return np.full(len(rows), -1, np.int64)
    order = np.argsort(known, kind="stable")
    found = np.searchsorted(known[order], wanted, side="right") - 1
    entries = order[np.maximum(found, 0)]
    return np.where(known[entries] == wanted, entries, -1).astype(np.int64)


def _check_writable(pieces: Pieces) -> None:
    if _WRITABLE in pieces.prepared:
        return
    for piece in pieces.pieces:
        if not piece.view.flags.writeable:
            raise InputError(
                "wrong_memory",
                f"a piece of array {piece.array}, member {piece.member} is read-only; give writable memory",
            )
    pieces.prepared[_WRITABLE] = True
