"""The inversion: its formulas in plain numbers, the reference, and the compiled kernel in all its forms."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deltastore.errors import InputError
from deltastore.kernels.blocks import Blocks, BoxOf
from deltastore.kernels.cpu.inversion import invert as cpu_invert
from deltastore.kernels.cpu.inversion import line_table
from deltastore.kernels.inversion import RULE, Outcome, Span
from deltastore.kernels.reference.block_digests import digest_blocks
from deltastore.kernels.reference.inversion import bf16_bits, invert, invert_elements

from .fences import fenced
from .inverting import (
    FILLS,
    FINITE,
    INVERT,
    LAYOUTS,
    SHAPES,
    Bits,
    Case,
    Floats,
    Invert,
    a_rule,
    assert_same,
    case_of,
    floats_of,
    laid_out,
    moved_to,
    plain_bf16,
    plain_interval,
)

EVERY: dict[str, Invert] = {"reference": invert, **INVERT}
every_backend = pytest.mark.parametrize("call", EVERY.values(), ids=EVERY)


@pytest.mark.parametrize("fill", FILLS)
def test_the_reference_rounds_to_the_nearest(fill: str) -> None:
    values = FILLS[fill](500, np.random.default_rng(1))
    for value, bits in zip(values.tolist(), bf16_bits(values).tolist(), strict=True):
        assert plain_bf16(value) == (-1 if math.isnan(value) else bits)


def test_a_nan_becomes_the_quiet_one_of_its_sign() -> None:
    values = floats_of(np.array([0x7F800001, 0xFF800001, 0x7FFFFFFF, 0xFFC12345]))
    assert bf16_bits(values).tolist() == [0x7FC0, 0xFFC0, 0x7FC0, 0xFFC0]


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("seed", range(6))
def test_the_reference_is_the_formulas(fill: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    master, mean, square = (FILLS[fill](200, rng) for _ in range(3))
    square = square if seed % 2 else np.abs(square)
    rule = np.array([a_rule(rng)], RULE)[0]
    known = {name: float(rule[name]) for name in RULE.names or ()}
    new, old, low, high, uncertain = (part.tolist() for part in invert_elements(master, mean, square, rule))
    for k, state in enumerate(zip(master.tolist(), mean.tolist(), square.tolist(), strict=True)):
        lower, middle, higher = (plain_bf16(value) for value in plain_interval(*state, known))
        assert plain_bf16(state[0]) in (new[k], -1)
        assert [middle, lower, higher] == [
            -1 if want < 0 else bits
            for want, bits in zip((middle, lower, higher), (old[k], low[k], high[k]), strict=True)
        ]
        assert uncertain[k] == (lower != higher or -1 in (lower, middle, higher))


@pytest.mark.parametrize("fill", FINITE)
@pytest.mark.parametrize("seed", range(5))
def test_every_form_gives_the_references_bits(fill: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    case = case_of(SHAPES, fill, rng)
    assert_same(case, case.wanted(rng), INVERT)


@pytest.mark.parametrize("fill", ["any bits", "infinities and NaNs"])
@pytest.mark.parametrize("seed", range(5))
def test_nans_are_uncertain_everywhere(fill: str, seed: int) -> None:
    """Of two NaNs that meet, NumPy takes either's sign: old values that are NaNs are compared as such."""
    rng = np.random.default_rng(seed)
    case = case_of(SHAPES, fill, rng)
    assert_same(case, case.wanted(rng, known=False), INVERT, nans=False)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_bits_of_plain_memory(layout: str) -> None:
    rng = np.random.default_rng(3)
    case = case_of(SHAPES, "midpoints", rng, "plain")
    wanted = case.wanted(rng)
    new, old, _ = case.run(invert, wanted)
    moved = moved_to(case, lambda view: laid_out(view, view.shape, layout))
    for name, call in INVERT.items():
        now, before, _ = moved.run(call, wanted)
        assert np.array_equal(now, new), name
        assert np.array_equal(before, old), name


def test_moments_of_no_stride() -> None:
    """One value for all elements, as ``broadcast_to`` gives it."""
    box = BoxOf((70, 90), (1, 2), (60, 80), 3)
    master = FILLS["ordinary"](4800, np.random.default_rng(2)).reshape(60, 80)
    mean, square = (np.broadcast_to(np.float32(value), (60, 80)) for value in (1e-3, 1e-6))
    case = Case(
        Blocks([box]), [Span(master, mean, square, 0)], np.array([a_rule(np.random.default_rng(1))], RULE)
    )
    assert_same(case, np.zeros(3, np.uint64), INVERT)


def test_rows_join_where_all_three_arrays_allow_it() -> None:
    cube = np.zeros((4, 6, 8), np.float32)
    blocks = Blocks([BoxOf((4, 6, 8), (0, 0, 0), (4, 6, 8), 1)])
    assert len(line_table(blocks, [Span(cube, cube, cube, 0)])) == 1
    halves = np.zeros((4, 12, 8), np.float32)[:, ::2]
    assert len(line_table(blocks, [Span(cube, cube, halves, 0)])) == 24
    outer = np.zeros((8, 6, 8), np.float32)[::2]
    table = line_table(blocks, [Span(cube, outer, cube, 0)])
    assert table[:, :2].tolist() == [[at, 48] for at in range(0, 192, 48)]
    column = np.zeros((5, 3), np.float32)[:, 1:2]
    table = line_table(Blocks([BoxOf((5, 3), (0, 1), (5, 1), 1)]), [Span(column, column, column, 2)])
    assert table[:, [0, 1, 2, 6, 7, 8]].tolist() == [[0, 5, 2, 12, 12, 12]]


def _with_ties(ties: int, seed: int) -> tuple[Case, Bits]:
    """One block of which so many elements are uncertain, and one combination of what they may have been."""
    rng = np.random.default_rng(seed)
    master = floats_of((rng.integers(0x3C00, 0x3D00, 2000) << 16) | 0x2000)
    places = np.sort(rng.choice(2000, ties, replace=False))
    master.view(np.uint32)[places] += np.uint32(0x6000)
    rules = np.array([(0, 1, 1e-8, 1, 2.0**-20, 0, 0)], RULE)
    zeros = np.zeros(2000, np.float32)
    truth = bf16_bits(master)
    truth[places] = (master.view(np.uint32)[places] >> np.uint32(16)) + rng.integers(0, 2, ties, np.uint32)
    return Case(
        Blocks([BoxOf((3000,), (77,), (2000,), 5)]), [Span(master, zeros, zeros + 1, 0)], rules
    ), truth


@every_backend
@pytest.mark.parametrize("ties", [0, 1, 2, 7, 8, 9, 40])
def test_up_to_eight_uncertain_elements_are_settled(call: Invert, ties: int) -> None:
    for seed in range(4):
        case, truth = _with_ties(ties, seed)
        new, old, found = case.run(call, digest_blocks(case.blocks, truth))
        assert found.uncertain.tolist() == [ties]
        assert found.digests.tolist() == digest_blocks(case.blocks, new).tolist()
        if ties <= 8 or np.array_equal(truth, bf16_bits(case.spans[0].master)):
            assert np.array_equal(old, truth)
            assert found.outcomes[0] in (Outcome.EXPLAINED, Outcome.SETTLED)
        else:
            assert found.outcomes.tolist() == [Outcome.UNEXPLAINED]


@every_backend
@pytest.mark.parametrize("ties", [0, 3, 9])
def test_what_nothing_explains_keeps_the_old_bits_of_the_inversion(call: Invert, ties: int) -> None:
    case, _ = _with_ties(ties, 1)
    _, old, found = case.run(call, np.array([12345], np.uint64))
    assert found.outcomes.tolist() == [Outcome.UNEXPLAINED]
    assert np.array_equal(old, bf16_bits(case.spans[0].master))


@every_backend
@pytest.mark.parametrize("ties", [0, 3, 9])
def test_a_block_that_did_not_change_is_seen_as_such(call: Invert, ties: int) -> None:
    """The digest is that of the new bits, though the rule says that every element moved."""
    case, _ = _with_ties(ties, 2)
    rules = case.rules.copy()
    rules["growth"] = 1.5
    moved = replace(case, rules=rules)
    wanted = digest_blocks(case.blocks, bf16_bits(case.spans[0].master))
    new, old, found = moved.run(call, wanted)
    assert found.outcomes.tolist() == [Outcome.UNCHANGED]
    assert np.array_equal(old, new)
    _, apart, found = moved.run(call, wanted + np.uint64(1))
    assert found.outcomes.tolist() == [Outcome.UNEXPLAINED]
    assert (apart != new).all()


def test_many_blocks_come_together_whatever_the_threads() -> None:
    rng = np.random.default_rng(7)
    boxes = tuple(BoxOf((300, 7000), (row, 11), (10, 6900), 2 * row + 1) for row in range(0, 100, 10))
    case = case_of(boxes, "ordinary", rng)
    case.rules["of_value"] = 2e-6
    calls = {f"on {n}": partial(cpu_invert, threads=n) for n in (1, 2, 3, 7, 64)}
    found = assert_same(case, case.wanted(rng), calls)
    assert len(case.blocks) == 340
    assert set(found.outcomes.tolist()) == set(Outcome)


def test_a_thread_that_flushes_denormals_gets_the_same_bits() -> None:
    rng = np.random.default_rng(5)
    case = case_of(SHAPES[:2], "edges", rng)
    wanted = case.wanted(rng)
    expected = case.run(invert, wanted)
    for name, call in INVERT.items():
        flushes = torch.set_flush_denormal(True)
        try:
            new, old, found = case.run(call, wanted)
            still = float(torch.tensor([1e-39]) * 1.0) == 0
        finally:
            torch.set_flush_denormal(False)
        assert still == flushes, name
        assert np.array_equal(new, expected[0]), name
        assert np.array_equal(old, expected[1]), name
        assert found.outcomes.tolist() == expected[2].outcomes.tolist(), name


@pytest.mark.parametrize("behind", [True, False])
def test_no_byte_beyond_the_arrays_is_touched(behind: bool) -> None:
    for elements in [*range(1, 70), 127, 128, 129, 2047, 2048, 2049, 2081]:
        rng = np.random.default_rng(elements)
        case = case_of((BoxOf((1 << 13,), (elements % 97,), (elements,), 3),), "midpoints", rng, "plain")
        wanted = fenced(case.wanted(rng), behind=behind)
        new, old, found = case.run(invert, wanted)
        moved = moved_to(case, partial(fenced, behind=behind))
        rules = fenced(case.rules, behind=behind)
        for name, call in INVERT.items():
            now, before = (fenced(np.zeros(elements, np.uint16), behind=behind) for _ in range(2))
            again = call(case.blocks, moved.spans, rules, wanted, now, before)
            assert np.array_equal(now, new), name
            assert np.array_equal(before, old), name
            assert again.outcomes.tolist() == found.outcomes.tolist(), name


@st.composite
def boxes(draw: st.DrawFn) -> BoxOf:
    size = draw(st.lists(st.integers(1, 40), max_size=3).map(tuple))
    lo = tuple(draw(st.integers(0, 3000 if axis == len(size) - 1 else 2)) for axis in range(len(size)))
    room = [draw(st.integers(0, 2)) for _ in size]
    shape = tuple(low + length + more for low, length, more in zip(lo, size, room, strict=True))
    return BoxOf(shape, lo, size, 2 * draw(st.integers(0, 2**63 - 1)) + 1)


@settings(max_examples=60)
@given(st.lists(boxes(), min_size=1, max_size=6), st.sampled_from(sorted(FINITE)), st.integers(0, 2**32 - 1))
def test_any_boxes(some: list[BoxOf], fill: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    case = case_of(tuple(some), fill, rng)
    assert_same(case, case.wanted(rng), INVERT)


@every_backend
def test_no_boxes(call: Invert) -> None:
    new, old = np.zeros((2, 0), np.uint16)
    found = call(Blocks([]), [], np.zeros(0, RULE), np.zeros(0, np.uint64), new, old)
    assert [len(found.digests), len(found.outcomes), len(found.uncertain)] == [0, 0, 0]


def _one(values: Floats, rule: int = 0) -> Span:
    return Span(values, values, values, rule)


@every_backend
def test_arguments_that_contradict_each_other_are_refused(call: Invert) -> None:
    blocks = Blocks([BoxOf((6,), (0,), (6,), 3)])
    good = np.zeros(6, np.float32)
    rules, wanted = np.zeros(1, RULE), np.zeros(1, np.uint64)
    new, old = np.zeros((2, 6), np.uint16)
    call(blocks, [_one(good)], rules, wanted, new, old)
    for arguments in (
        ([], rules, wanted, new, old),
        ([_one(good[:5])], rules, wanted, new, old),
        ([_one(good.astype(np.float64))], rules, wanted, new, old),
        ([_one(good, 1)], rules, wanted, new, old),
        ([_one(good, -1)], rules, wanted, new, old),
        ([_one(good)], rules[:0], wanted, new, old),
        ([_one(good)], np.zeros(7, np.float32), wanted, new, old),
        ([_one(good)], rules, np.zeros(2, np.uint64), new, old),
        ([_one(good)], rules, wanted.view(np.int64), new, old),
        ([_one(good)], rules, wanted, new[:5], old),
        ([_one(good)], rules, wanted, new, np.zeros(12, np.uint16)[::2]),
    ):
        with pytest.raises(InputError):
            call(blocks, *arguments)
