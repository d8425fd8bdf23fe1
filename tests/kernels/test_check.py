"""Patches that break a rule: the same ones are refused by every backend, and at the same row."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deltastore.errors import PatchError
from deltastore.kernels.grid import ChunkGrid
from deltastore.kernels.pieces import GridArray, KernelTable
from deltastore.kernels.rows import REASONS, Octets, Rows
from tests.format import naive

from . import plain
from .backends import BOTH, COMPILED, REFERENCE, Kernels, each_backend, refused_row
from .forging import DAMAGES, ForgedRun, damaged, pack, runs_patch, sound_pack
from .memory import memory_of
from .models import Change, changes, seeds, table_of, tables


def verdict(kernels: Kernels, table: KernelTable, rows: Rows, body: Octets) -> int | None:
    """The first bad row, or None. Nothing but a refusal is raised."""
    return refused_row(lambda: kernels.check(table, rows, body))


def specified_verdict(table: KernelTable, rows: Rows, body: Octets) -> int | None:
    """The same by the specification's words."""
    at = 0
    for number, (array, chunk, length, count, encoding, *_) in enumerate(rows.tolist()):
        if array >= len(table.arrays) or at + length > len(body):
            return number
        form = table.arrays[array]
        axes = zip(form.grid.extent, form.grid.chunk, strict=True)
        if chunk >= np.prod([-(-extent // step) for extent, step in axes]):
            return number
        _, size = plain.chunk_box(form.grid.extent, form.grid.chunk, chunk)
        try:
            found = naive.decode(body[at : at + length].tobytes(), encoding, form, int(np.prod(size)))
        except naive.RefusedError:
            return number
        if len(found) != count:
            return number
        at += length
    return None


def check_same_verdict(table: KernelTable, rows: Rows, body: Octets) -> int | None:
    expected = verdict(REFERENCE, table, rows, body)
    for kernels in COMPILED:
        assert verdict(kernels, table, rows, body) == expected, kernels.name
    return expected


@settings(max_examples=70)
@given(table=tables(300), seed=seeds)
def test_any_sound_form_is_accepted(table: KernelTable, seed: int) -> None:
    rows, body = sound_pack(table, np.random.default_rng(seed))
    assert specified_verdict(table, rows, body) is None
    assert check_same_verdict(table, rows, body) is None


@pytest.mark.parametrize("way", DAMAGES)
@settings(max_examples=25)
@given(table=tables(200), seed=seeds)
def test_a_damaged_pack(way: str, table: KernelTable, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, body = sound_pack(table, rng)
    if len(rows) and len(body):
        rows, body = damaged(rows, body, way, rng)
        assert check_same_verdict(table, rows, body) == specified_verdict(table, rows, body)


@settings(max_examples=70)
@given(change=changes(most=400), ways=st.lists(st.sampled_from(DAMAGES), min_size=1, max_size=3), seed=seeds)
def test_a_damaged_pack_of_a_real_change(change: Change, ways: list[str], seed: int) -> None:
    rng = np.random.default_rng(seed)
    new, old = (
        memory_of(change.table, rng, ("whole",)).filled(bits) for bits in (change.after, change.before)
    )
    patches = REFERENCE.encode_changed(new.pieces, old.pieces, change.every_chunk())
    rows, body = patches.rows, patches.body
    for way in ways:
        if len(rows) and len(body) and verdict(REFERENCE, change.table, rows, body) is None:
            rows, body = damaged(rows, body, way, rng)
    assert check_same_verdict(change.table, rows, body) == specified_verdict(change.table, rows, body)


@settings(max_examples=250)
@given(
    itemsize=st.sampled_from([1, 2, 4, 8]),
    elements=st.integers(1, 70),
    patches=st.lists(
        st.tuples(st.binary(max_size=60), st.sampled_from([0, 0, 0, 1, 2, 2**32 - 1]), st.integers(0, 70)),
        max_size=4,
    ),
    runs=st.integers(0, 7),
)
@example(itemsize=2, elements=1, patches=[(b"", 0, 0)], runs=0)
def test_any_bytes(itemsize: int, elements: int, patches: list[tuple[bytes, int, int]], runs: int) -> None:
    table = table_of(GridArray(ChunkGrid((1, 4 * elements), (1, elements)), itemsize, floating=True))
    entries = [
        (0, chunk, count, encoding, struct.pack("<I", runs) + data if chunk % 2 else data)
        for chunk, (data, encoding, count) in enumerate(patches)
    ]
    rows, body = pack(entries)
    assert check_same_verdict(table, rows, body) == specified_verdict(table, rows, body)


ELEMENTS = 100
GOOD = ForgedRun(2, 3, [1, 50, 99], [1, 1, 3])
BROKEN: dict[str, tuple[str, list[ForgedRun], int]] = {
    "no run": (REASONS[4], [], 0),
    "seven runs": (REASONS[4], [GOOD] * 7, 21),
    "a width of 0": (REASONS[5], [ForgedRun(0, 3, [1], [0])], 1),
    "a width of 1": (REASONS[5], [ForgedRun(1, 3, [1], [0])], 1),
    "a width of 3": (REASONS[5], [ForgedRun(3, 3, [1], [0])], 1),
    "a width above the element's": (REASONS[5], [ForgedRun(32, 3, [1], [0])], 1),
    "widths that repeat": (REASONS[5], [ForgedRun(4, 3, [1], [0]), ForgedRun(4, 3, [2], [0])], 2),
    "widths that descend": (REASONS[5], [ForgedRun(4, 3, [1], [0]), ForgedRun(2, 3, [2], [0])], 2),
    "20 low bits": (REASONS[6], [ForgedRun(2, 20, [1], [1])], 1),
    "255 low bits": (REASONS[6], [ForgedRun(2, 255, [1], [1])], 1),
    "a reserved bit": (REASONS[6], [ForgedRun(2, 3, [1], [1], reserved=0x8000)], 1),
    "a run of none": (REASONS[6], [ForgedRun(2, 3, [], [])], 0),
    "a run of more than the chunk": (REASONS[6], [ForgedRun(2, 0, list(range(101)), [1] * 101)], 101),
    "a run of far too many": (REASONS[6], [ForgedRun(2, 3, [1], [1], claimed=2**32 - 1)], 2**32 - 1),
    "a run that says more": (REASONS[9], [ForgedRun(2, 0, [1, 50], [1, 1], claimed=3)], 3),
    "a run that says less": (REASONS[9], [ForgedRun(2, 0, [1, 50, 60], [1, 1, 1], claimed=2)], 2),
    "positions that descend": (REASONS[10], [ForgedRun(2, 4, [3, 2], [1, 1])], 2),
    "a position twice": (REASONS[10], [ForgedRun(2, 4, [3, 3], [1, 1])], 2),
    "a position beyond the chunk": (REASONS[10], [ForgedRun(2, 3, [1, 100], [1, 1])], 2),
    "a position far beyond the chunk": (REASONS[10], [ForgedRun(2, 19, [2**19 - 1], [1])], 1),
    "a position in two runs": (REASONS[11], [GOOD, ForgedRun(8, 0, [2, 50], [1, 1])], 5),
    "the last position in two runs": (REASONS[11], [GOOD, ForgedRun(16, 7, [99], [1])], 4),
    "a row that counts fewer": (REASONS[13], [GOOD], 2),
    "a row that counts more": (REASONS[13], [GOOD], 4),
    "a row that counts none": (REASONS[13], [GOOD], 0),
}


@each_backend
@pytest.mark.parametrize("name", BROKEN)
def test_each_rule(kernels: Kernels, name: str) -> None:
    """One bad patch behind a good one; the reason is that of the rule, where only one rule is broken."""
    reason, runs, count = BROKEN[name]
    table = table_of(GridArray(ChunkGrid((2, ELEMENTS), (1, ELEMENTS)), 2, floating=True))
    rows, body = pack(
        [(0, 0, 3, 0, runs_patch(ELEMENTS, [GOOD])), (0, 1, count, 0, runs_patch(ELEMENTS, runs))]
    )
    with pytest.raises(PatchError) as caught:
        kernels.check(table, rows, body)
    assert caught.value.row == 1
    several = name in ("a run of more than the chunk", "a run that says more", "a run that says less")
    assert caught.value.reason == reason or several


@each_backend
@pytest.mark.parametrize("elements", [1, 31, 32, 33, 63, 64, 65, 100])
@pytest.mark.parametrize("low_bits", [0, 1, 5, 6, 19])
def test_every_unused_bit_and_every_stray_one(kernels: Kernels, elements: int, low_bits: int) -> None:
    """Any single bit of a patch, flipped: the specification says which flips leave it sound."""
    table = table_of(GridArray(ChunkGrid((1, elements), (1, elements)), 4, floating=False))
    positions = sorted({0, elements // 3, elements // 2, elements - 1})
    runs = [ForgedRun(4, low_bits, positions[:1], [3]), ForgedRun(32, low_bits, positions[1:], [5] * 3)]
    runs = [ForgedRun(run.width, low_bits, run.positions, run.residues[: len(run.positions)]) for run in runs]
    data = runs_patch(elements, [run for run in runs if run.positions])
    sound = 0
    for bit in range(8 * len(data)):
        broken = bytearray(data)
        broken[bit // 8] ^= 1 << bit % 8
        rows, body = pack([(0, 0, len(positions), 0, bytes(broken))])
        expected = specified_verdict(table, rows, body)
        assert verdict(kernels, table, rows, body) == expected
        sound += expected is None
    assert sound >= 4


@each_backend
@pytest.mark.parametrize(("array", "chunk"), [(0, 3), (1, 0), (2**32 - 1, 0), (0, 2**32 - 1), (2, 0)])
def test_chunks_that_the_table_has_not(kernels: Kernels, array: int, chunk: int) -> None:
    table = table_of(
        GridArray(ChunkGrid((3, 8), (1, 8)), 2, floating=True),
        GridArray(ChunkGrid((3, 0), (1, 8)), 2, floating=True),
    )
    good = runs_patch(8, [ForgedRun(2, 0, [1], [1])])
    rows, body = pack([(0, 2, 1, 0, good), (array, chunk, 1, 0, good)])
    assert verdict(kernels, table, rows, body) == 1


@each_backend
@pytest.mark.parametrize(
    "lengths", [[2**32 - 1] * 2, [2**32 - 4, 8], [24, 2**31], [24, 28], [0, 24], [23, 25]]
)
def test_lengths_that_leave_the_body(kernels: Kernels, lengths: list[int]) -> None:
    """Their sum does not fit 32 bits, or ends anywhere but where a patch does."""
    table = table_of(GridArray(ChunkGrid((3, 8), (1, 8)), 2, floating=True))
    good = runs_patch(8, [ForgedRun(2, 0, [1], [1])])
    assert len(good) == 20
    rows, body = pack([(0, 0, 1, 0, good), (0, 1, 1, 0, good)])
    rows["length"] = lengths
    assert verdict(kernels, table, rows, body) == specified_verdict(table, rows, body) == 0


@each_backend
def test_bytes_behind_the_last_patch_belong_to_no_row(kernels: Kernels) -> None:
    """A kernel is told of patches by rows; what else the buffer holds is not its matter."""
    table = table_of(GridArray(ChunkGrid((3, 8), (1, 8)), 2, floating=True))
    rows, body = pack([(0, 0, 1, 0, runs_patch(8, [ForgedRun(2, 0, [1], [1])]))])
    assert verdict(kernels, table, rows, np.concatenate([body, body])) is None
    assert verdict(kernels, table, rows[:0], body) is None


def test_the_first_bad_row_of_many_whatever_the_threads() -> None:
    table = table_of(GridArray(ChunkGrid((1, 4000), (1, 8)), 2, floating=True))
    good, bad = (runs_patch(8, [ForgedRun(width, 0, [1], [1])]) for width in (2, 3))
    for first in (0, 1, 255, 256, 499):
        entries = [
            (0, chunk, 1, 0, bad if chunk >= first and chunk % 3 != 1 else good) for chunk in range(500)
        ]
        entries[first] = (0, first, 1, 0, bad)
        rows, body = pack(entries)
        for kernels in BOTH + COMPILED:
            assert verdict(kernels, table, rows, body) == first, kernels.name


@each_backend
@pytest.mark.parametrize("low_bits", [0, 1, 18, 19])
def test_the_greatest_sections(kernels: Kernels, low_bits: int) -> None:
    """A chunk of 2**20 elements with sections as long as any L makes them."""
    elements = 2**20
    table = table_of(GridArray(ChunkGrid((1, elements), (1, elements)), 8, floating=True))
    some = ForgedRun(2, low_bits, [0, 1, elements - 2, elements - 1], [1, 3, 1, 3])
    beyond = ForgedRun(2, low_bits, [0, 1, elements - 1, elements], [1, 3, 1, 3])
    rows, body = pack([(0, 0, 4, 0, runs_patch(elements, [some]))])
    assert verdict(kernels, table, rows, body) is None
    rows, body = pack([(0, 0, 4, 0, runs_patch(elements, [beyond]))])
    assert verdict(kernels, table, rows, body) == 0
