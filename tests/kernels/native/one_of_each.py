"""Every kernel once in each of its forms, small enough for valgrind, which then knows each byte that is read.

Results are compared byte by byte with the reference's, so a byte that a kernel never wrote is noticed here at
the latest. Run by ``make valgrind``.
"""

from __future__ import annotations

import sys
from functools import partial

import numpy as np

from deltastore.kernels import cpu
from deltastore.kernels.grid import ChunkGrid
from deltastore.kernels.pieces import GridArray
from deltastore.kernels.reference.block_digests import digest_blocks
from deltastore.kernels.reference.digest import digest_range
from deltastore.kernels.rows import EncodedPatches, ListedChanges, StagedBits
from tests.kernels import encoded, staging
from tests.kernels.backends import COMPILED, REFERENCE, Kernels, refused_row
from tests.kernels.forging import DAMAGES, damaged
from tests.kernels.inverting import DIGEST, FINITE, INVERT, SHAPES, assert_same, case_of
from tests.kernels.memory import Memory, memory_of
from tests.kernels.models import Change, change_of, every_chunk, table_of


def require(holds: bool, what: str) -> None:
    if not holds:
        sys.exit(f"{what}: not the reference's answer")


def every_form(kernels: Kernels, change: Change, shape: Memory) -> None:
    table, chunks = change.table, every_chunk(change.table)
    old, new = shape.filled(change.before), shape.filled(change.after)
    patches = REFERENCE.encode_changed(new.pieces, old.pieces, chunks)
    require(encoded.same(kernels.encode_changed(new.pieces, old.pieces, chunks), patches), "encode_changed")
    staged, differences = kernels.resolve(old.pieces, patches.rows, patches.body, None)
    expected, _ = REFERENCE.resolve(old.pieces, patches.rows, patches.body, None)
    require(staging.same(staged, expected), "resolve")
    require(differences.tolist() == patches.rows["difference"].tolist(), "digest differences")
    listing = ListedChanges(staged, expected.bits[::-1].copy())
    for whole in (None, new.pieces):
        listed = REFERENCE.encode_listed(table, listing, whole)
        require(encoded.same(kernels.encode_listed(table, listing, whole), listed), "encode_listed")
    digests = REFERENCE.digest_chunks(new.pieces, chunks).tolist()
    require(kernels.digest_chunks(new.pieces, chunks).tolist() == digests, "digest_chunks")
    under, _ = kernels.resolve(old.pieces, patches.rows, patches.body, staged)
    both, overlaps = kernels.merge(table, staged, under)
    require(staging.same(both, REFERENCE.merge(table, staged, under)[0]), "merge")
    require(overlaps == len(staged.positions), "merge's overlaps")
    written_every_way(kernels, old, new, staged, patches)
    refused_every_way(kernels, old, patches)


def written_every_way(
    kernels: Kernels, old: Memory, new: Memory, staged: StagedBits, patches: EncodedPatches
) -> None:
    kernels.check(old.table, patches.rows, patches.body)
    written = old.copy()
    kernels.apply(written.pieces, patches.rows, patches.body)
    require(written.arena.tobytes() == new.arena.tobytes(), "apply")
    written = old.copy()
    require(kernels.mismatches(written.pieces, staged) > 0, "mismatches before")
    kernels.scatter(written.pieces, staged)
    require(written.arena.tobytes() == new.arena.tobytes(), "scatter")
    require(kernels.mismatches(written.pieces, staged) == 0, "mismatches after")


def refused_every_way(kernels: Kernels, old: Memory, patches: EncodedPatches) -> None:
    rng = np.random.default_rng(8)
    for way in DAMAGES:
        rows, body = damaged(patches.rows, patches.body, way, rng)
        expected = refused_row(partial(REFERENCE.check, old.table, rows, body))
        require(refused_row(partial(kernels.check, old.table, rows, body)) == expected, f"check: {way}")
        refused_row(partial(kernels.resolve, old.pieces, rows, body, None))
        refused_row(partial(kernels.apply, old.copy().pieces, rows, body))


def inverted_every_way() -> None:
    rng = np.random.default_rng(6)
    for fill in FINITE:
        case = case_of(SHAPES, fill, rng)
        wanted = case.wanted(rng)
        assert_same(case, wanted, INVERT)
        bits = case.elements()[0]
        for width in (np.uint8, np.uint16, np.uint32, np.uint64):
            expected = digest_blocks(case.blocks, bits.astype(width)).tolist()
            for name, call in DIGEST.items():
                require(call(case.blocks, bits.astype(width)).tolist() == expected, f"digest_blocks {name}")


def main() -> None:
    print("instructions:", cpu.supported_instructions().name)
    for number, itemsize in enumerate((1, 2, 4, 8)):
        rng = np.random.default_rng(itemsize)
        grids = (ChunkGrid((2, 9, 31), (1, 4, 31)), ChunkGrid((1, 700), (1, 650)), ChunkGrid((3,), (3,)))
        table = table_of(*(GridArray(grid, itemsize, floating=number % 2 == 0) for grid in grids))
        change = change_of(table, 0.3, "edges", rng)
        shape = memory_of(table, rng, ("whole", "columns", "blocks"))
        for kernels in COMPILED:
            every_form(kernels, change, shape)
        bits = change.after[1, 0]
        for level in cpu.Instructions:
            require(
                cpu.digest_range(bits, 9, 7, instructions=level) == digest_range(bits, 9, 7), "digest_range"
            )
    inverted_every_way()
    print("every kernel gives the reference's bytes")


if __name__ == "__main__":
    main()
