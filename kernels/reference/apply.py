"""From patches to weights, for many patches in one call (SPEC sections "Patch" and "Applying a version")."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltastore.errors import PatchError
from deltastore.kernels.pieces import KernelTable, Pieces
from deltastore.kernels.reference.encode import difference
from deltastore.kernels.reference.held import HeldChunk
from deltastore.kernels.reference.patch import DecodedPatch, Run, decode_patch
from deltastore.kernels.reference.staged import Change, staged, staged_chunks
from deltastore.kernels.rows import REASONS, RULE_OF, Octets, Rows, StagedBits, check_pack, offsets_of

__all__ = ["apply", "check", "mismatches", "resolve", "scatter"]

Bits = np.ndarray[Any, Any]


def check(table: KernelTable, rows: Rows, body: Octets) -> None:
    """Every rule that a patch can break by itself (DS030 to DS034), for all patches of a pack.

    ``rows`` (R,) of dtype ``ROW``, ``body`` their patches. Neither weights nor ``difference`` nor ``check``
    are looked at. Raises PatchError (code ``bad_patch``) for the first bad row. O(body + elements written);
    memory: a few chunks' positions for each thread, whatever the rows say.
    """
    for _ in _decoded(table, rows, body):
        pass


def resolve(
    pieces: Pieces, rows: Rows, body: Octets, under: StagedBits | None = None
) -> tuple[StagedBits, NDArray[np.uint64]]:
    """Work out the new bits of every element of the patches that ``pieces`` hold; nothing is written.

    ``under``: new bits that are staged already, but not written: they count as standing in memory. Where
    several pieces hold an element it must fit in all of them, and the first one's bits count. Returns the
    staged bits, one entry for each row in their order, and for each row the digest difference of its held
    elements (uint64 ``(R,)``): that is its ``difference`` where all of the patch's elements are held.

    Rows are of distinct chunks. Raises PatchError for the first row that breaks a rule or does not fit the
    current weights (DS036). O(body + elements written).
    """
    known = {} if under is None else dict(staged_chunks(pieces.table, under))
    changes = []
    differences = np.zeros(len(rows), np.uint64)
    for number, patch in _decoded(pieces.table, rows, body):
        place = (int(rows[number]["array"]), int(rows[number]["chunk"]))
        positions, old, new = _resolved(pieces, place, patch, known.get(place), number)
        changes.append((place, (positions, new)))
        differences[number] = difference(pieces.table, *place, positions, old, new)
    return staged(changes), differences


def scatter(pieces: Pieces, new: StagedBits) -> None:
    """Write the staged bits, in every piece that holds the element; elements that none holds are left out.

    ``new``: n elements of any chunks, as ``resolve`` gives them. Nothing is written outside the pieces'
    boxes, whatever ``new`` says. O(n). Raises InputError
    ``bad_argument`` before the first write when positions do not ascend strictly or leave their chunk.
    """
    changes = list(staged_chunks(pieces.table, new))
    for (array, chunk), (positions, bits) in changes:
        HeldChunk(pieces, array, chunk).scatter(positions, bits)


def mismatches(pieces: Pieces, new: StagedBits) -> int:
    """How many elements in memory differ from what ``scatter`` writes there: 0 right after it.

    One that several pieces hold counts in each. Raises InputError as ``scatter``. O(n).
    """
    return sum(
        HeldChunk(pieces, array, chunk).mismatches(positions, bits)
        for (array, chunk), (positions, bits) in staged_chunks(pieces.table, new)
    )


def apply(pieces: Pieces, rows: Rows, body: Octets) -> None:
    """Write patches straight into memory; all of them are checked as by ``check`` before the first write.

    ``rows`` (R,) of dtype ``ROW``, of distinct chunks, and ``body``, their patches. Raises PatchError for the
    first row that does not fit the current weights: nothing of that row stays written, of the others any may
    be. Doing it again is harmless. Where several pieces hold an element, what each gets follows from its own
    bits. O(body + elements written).
    """
    for number, patch in list(_decoded(pieces.table, rows, body)):
        place = (int(rows[number]["array"]), int(rows[number]["chunk"]))
        ready = [
            (alone, _resolved(alone, place, patch, None, number)) for alone in _one_by_one(pieces, *place)
        ]
        for alone, (positions, _, new) in ready:
            HeldChunk(alone, *place).scatter(positions, new)


def _decoded(table: KernelTable, rows: Rows, body: Octets) -> Iterator[tuple[int, DecodedPatch]]:
    check_pack(rows, body)
    offsets = offsets_of(rows)
    for number, row in enumerate(rows):
        array, chunk = int(row["array"]), int(row["chunk"])
        inside = array < len(table.arrays) and chunk < len(table.arrays[array].grid)
        if not inside or offsets[number + 1] > len(body):
            raise PatchError(number, REASONS[1], RULE_OF[REASONS[1]])
        form = table.arrays[array]
        data = body[offsets[number] : offsets[number + 1]]
        try:
            patch = decode_patch(data, int(row["encoding"]), form, form.grid.box(chunk).elements)
        except ValueError as error:
            raise PatchError(number, str(error), RULE_OF[str(error)]) from None
        if len(patch.positions) != int(row["count"]):
            raise PatchError(number, REASONS[13], RULE_OF[REASONS[13]])
        yield number, patch


def _resolved(
    pieces: Pieces, place: tuple[int, int], patch: DecodedPatch, under: Change | None, number: int
) -> tuple[NDArray[np.uint32], Bits, Bits]:
    """Held positions of the patch, ascending, with the bits that stand there and those to write."""
    elements = pieces.table.arrays[place[0]].grid.box(place[1]).elements
    old = np.zeros(elements, patch.element.storage)
    new, held = old.copy(), np.zeros(elements, bool)
    for alone in reversed(_one_by_one(pieces, *place)):
        bits, here = HeldChunk(alone, *place).gather()
        if under is not None:
            bits[under[0]] = under[1]
        mine = here[patch.positions]
        try:
            written = _only(patch, mine).new_bits(bits[patch.positions[mine]])
        except ValueError as error:
            raise PatchError(number, str(error), RULE_OF[str(error)]) from None
        at = patch.positions[mine]
        old[at], new[at], held[at] = bits[at], written, True
    positions = np.flatnonzero(held).astype(np.uint32)
    return positions, old[positions], new[positions]


def _only(patch: DecodedPatch, chosen: NDArray[np.bool_]) -> DecodedPatch:
    """The patch of the elements that are ``chosen``, a mask over its positions."""
    runs, at = [], 0
    for run in patch.runs:
        mine = chosen[at : at + len(run.positions)]
        runs.append(Run(run.width, run.positions[mine], run.residues[mine]))
        at += len(run.positions)
    raw = None if patch.raw is None else patch.raw[chosen]
    return DecodedPatch(patch.element, patch.positions[chosen], tuple(runs), raw)


def _one_by_one(pieces: Pieces, array: int, chunk: int) -> list[Pieces]:
    """Every piece that may hold elements of the chunk, each by itself."""
    box = pieces.table.arrays[array].grid.box(chunk)
    members = range(box.start[0], box.start[0] + box.size[0])
    return [Pieces(pieces.table, [piece]) for member in members for piece in pieces.of(array, member)]
