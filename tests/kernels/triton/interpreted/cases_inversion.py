"""The inversion of an AdamW step and its certificate against the reference, in Triton's interpreter."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from deltastore.kernels.bench_gpu_inversion import InversionCase
from deltastore.kernels.blocks import Blocks, BoxOf
from deltastore.kernels.inversion import MOST_UNCERTAIN, RULE, Inverted, Outcome, Span
from deltastore.kernels.reference import inversion as reference
from deltastore.kernels.reference.block_digests import digest_blocks as reference_digest_blocks
from deltastore.kernels.triton.block_digests import digest_blocks
from deltastore.kernels.triton.boxes import lanes_of
from deltastore.kernels.triton.inversion import invert

Bits = NDArray[np.uint16]
Floats = NDArray[np.float32]
Form = Callable[[Floats], torch.Tensor]


def plain(values: Floats) -> torch.Tensor:
    return torch.from_numpy(np.array(values))


def transposed(values: Floats) -> torch.Tensor:
    return torch.from_numpy(np.array(values.T, order="C")).permute(*reversed(range(values.ndim)))


def padded(values: Floats) -> torch.Tensor:
    """Off by one element, and with room after every row."""
    wide = torch.full([length + 3 for length in values.shape], float("nan"))
    inner = wide[tuple(slice(1, 1 + length) for length in values.shape)]
    inner.copy_(torch.from_numpy(np.array(values)))
    return inner


def off_by_one(values: Floats) -> torch.Tensor:
    memory = torch.zeros(values.size + 1)
    memory[1:] = torch.from_numpy(values.ravel())
    return memory[1:].view(values.shape)


BOXES = (
    (BoxOf((4100,), (0,), (4100,), 0x9E3779B97F4A7C15), (plain, plain, plain)),
    (BoxOf((2048,), (0,), (2048,), 3), (off_by_one, plain, plain)),
    (BoxOf((7, 600), (1, 0), (5, 600), 5), (plain, plain, plain)),
    (BoxOf((7, 600), (1, 0), (5, 600), 5), (plain, transposed, padded)),
    (BoxOf((40, 100), (3, 11), (30, 71), (1 << 64) - 1), (plain, plain, plain)),
    (BoxOf((6, 5000), (2, 17), (3, 4500), 7), (padded, plain, padded)),
    (BoxOf((5, 9, 50), (1, 2, 3), (4, 6, 40), 9), (transposed, padded, plain)),
    (BoxOf((3000, 7), (400, 6), (2500, 1), 11), (plain, plain, transposed)),
    (BoxOf((), (), (), 13), (plain, plain, plain)),
    (BoxOf((9, 9), (8, 8), (1, 1), 15), (padded, plain, plain)),
    (BoxOf((1 << 21, 5000), ((1 << 21) - 2, 0), (2, 1500), 17), (plain, plain, plain)),
    (BoxOf((1 << 21, 1500), ((1 << 21) - 2, 0), (2, 1500), 19), (plain, plain, plain)),
)

RULES = np.array(
    [
        (1e-3, 31.6, 1e-8, 1.00001, 4e-6, 1e-6, 1e-12),
        (1e-3, 31.6, 1e-8, 1.00001, 1e-3, 1e-6, 1e-12),
        (1e-4, 1.0, 1e-8, 1.0, 0.0, 0.0, 0.0),
    ],
    RULE,
)


def span_of(held: Sequence[Any], rule: int) -> Span:
    return Span(held[0], held[1], held[2], rule)


def on_device(spans: Sequence[Span], forms: Sequence[tuple[Form, Form, Form]] | None = None) -> list[Span]:
    """The spans as torch tensors, each in its form."""
    moved = []
    for number, span in enumerate(spans):
        mine = forms[number] if forms is not None else (plain, plain, plain)
        held = (span.master, span.mean, span.square)
        moved.append(span_of([form(each) for form, each in zip(mine, held, strict=True)], span.rule))
    return moved


def same(found: Inverted, expected: Inverted) -> bool:
    return all(
        getattr(found, name).dtype == getattr(expected, name).dtype
        and np.array_equal(getattr(found, name), getattr(expected, name))
        for name in ("digests", "outcomes", "uncertain")
    )


def both_agree(
    blocks: Blocks,
    spans: Sequence[Span],
    rules: np.ndarray[Any, Any],
    wanted: NDArray[np.uint64],
    moved: Sequence[Span] | None = None,
    ahead: int = 0,
) -> Inverted:
    """What the reference gives, and the kernels to the bit; what follows the buffers is left alone."""
    new, old = np.full((2, blocks.elements), 0xABCD, np.uint16)
    expected = reference.invert(blocks, spans, rules, wanted, new, old)
    whole = torch.full((2, ahead + blocks.elements + 5), 0x1234, dtype=torch.int16)
    with np.errstate(all="ignore"):
        found = invert(blocks, moved or on_device(spans), rules, wanted, whole[0, ahead:], whole[1, ahead:])
    result = whole.numpy().view(np.uint16)
    end = ahead + blocks.elements
    assert np.array_equal(result[0, ahead:end], new)
    assert np.array_equal(result[1, ahead:end], old)
    assert (result[:, :ahead] == 0x1234).all()
    assert (result[:, end:] == 0x1234).all()
    assert same(found, expected)
    return expected


def random_spans(seed: int) -> tuple[Blocks, list[Span]]:
    generator = np.random.default_rng(seed)
    spans = []
    for number, (box, _) in enumerate(BOXES):
        master, mean, square = (
            (generator.normal(size=box.size) * scale).astype(np.float32) for scale in (0.02, 1e-3, 1e-3)
        )
        spans.append(span_of([master, mean, square * square], number % 3))
    return Blocks([box for box, _ in BOXES]), spans


def truth_of(blocks: Blocks, spans: Sequence[Span], seed: int) -> NDArray[np.uint64]:
    """Digests of what may have been before: some candidate of every element; every fifth block is another's,
    and every seventh is as the new one.
    """
    generator = np.random.default_rng(seed)
    now, before = np.empty((2, blocks.elements), np.uint16)
    for number, span in enumerate(spans):
        here = slice(int(blocks.first[number]), int(blocks.first[number + 1]))
        new, *candidates, _ = reference.invert_elements(span.master, span.mean, span.square, RULES[span.rule])
        choice = generator.integers(0, 3, new.size)
        now[here] = new.ravel()
        before[here] = np.choose(choice, [each.ravel() for each in candidates])
    wanted = reference_digest_blocks(blocks, before)
    wanted[::5] += np.uint64(1)
    wanted[::7] = reference_digest_blocks(blocks, now)[::7]
    return wanted


@pytest.mark.parametrize(("seed", "ahead"), [(0, 0), (1, 3)])
def test_boxes_in_any_memory_are_inverted_as_the_reference_does(seed: int, ahead: int) -> None:
    blocks, spans = random_spans(seed)
    moved = on_device(spans, [forms for _, forms in BOXES])
    expected = both_agree(blocks, spans, RULES, truth_of(blocks, spans, seed), moved, ahead)
    assert set(expected.outcomes) == set(Outcome)
    assert expected.uncertain.max() > MOST_UNCERTAIN


def test_where_every_rule_is_wrong_nothing_is_explained() -> None:
    blocks, spans = random_spans(2)
    wanted = truth_of(blocks, spans, 2)
    wrong = RULES.copy()
    wrong["step_size"] *= 3
    expected = both_agree(blocks, spans, wrong, wanted)
    assert (expected.outcomes == Outcome.UNEXPLAINED).sum() > len(blocks) // 2


def test_where_no_step_was_taken_all_is_unchanged() -> None:
    blocks, spans = random_spans(3)
    now = np.concatenate([reference.bf16_bits(span.master).ravel() for span in spans])
    expected = both_agree(blocks, spans, RULES, reference_digest_blocks(blocks, now))
    assert (expected.outcomes == Outcome.UNCHANGED).sum() > len(blocks) // 2


HOSTILE = np.array(
    [
        *(0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x80800000),
        *(0x7F800000, 0xFF800000, 0x7FC00001, 0xFFC00001, 0x7F800001, 0xFF800001, 0x7FFFFFFF),
        *(0x7F7FFFFF, 0xFF7FFFFF, 0x7F7F8000, 0x3F800000, 0xBF808000, 0x3F818000, 0x00008000),
    ],
    np.uint32,
).view(np.float32)

FIERCE = np.array(
    [
        (1e-3, 30, 1e-8, 1.0001, 2e-7, 2e-7, 1e-40),
        (np.inf, 0, 0, 1, 0, 0, 0),
        (0, 1, 0, np.inf, np.inf, np.inf, np.inf),
        (1e-45, 1e-45, 1e-45, 1, 1, 1e-45, 1e-45),
    ],
    RULE,
)


@pytest.mark.parametrize("rule", range(len(FIERCE)))
def test_hostile_values_give_the_same_bits(rule: int) -> None:
    values = tuple(grid.ravel().copy() for grid in np.meshgrid(HOSTILE, HOSTILE, HOSTILE, indexing="ij"))
    blocks = Blocks([BoxOf(values[0].shape, (0,), values[0].shape, 21)])
    spans = [span_of(values, rule)]
    both_agree(blocks, spans, FIERCE, np.zeros(len(blocks), np.uint64))


def test_any_bits_give_the_same_bits() -> None:
    generator = np.random.default_rng(4)
    values = generator.integers(0, 1 << 32, (3, 8192), np.uint32).view(np.float32)
    blocks = Blocks([BoxOf((8192,), (0,), (8192,), 23)])
    for rule in range(2):
        both_agree(blocks, [span_of(list(values), rule)], FIERCE, np.zeros(len(blocks), np.uint64))


def test_values_at_the_edges_of_rounding_give_the_same_bits() -> None:
    edges = (np.arange(0, 1 << 32, 0x00310000).astype(np.uint32) & 0xFFFF0000) | 0x8000
    bits = (edges[:, None] + np.arange(-3, 4).astype(np.uint32)).ravel()
    master = bits.view(np.float32)
    blocks = Blocks([BoxOf(master.shape, (0,), master.shape, 25)])
    for reach in (0.0, 6e-8, 1.2e-7):
        rules = np.array([(0, 1, 1e-8, 1, reach, 0, 0)], RULE)
        mean, square = np.zeros((2, len(master)), np.float32)
        both_agree(blocks, [Span(master, mean, square, 0)], rules, np.zeros(len(blocks), np.uint64))


@pytest.mark.parametrize("shape", [(2100,), (2100, 2)])
def test_what_is_beyond_the_last_element_has_no_part_in_digests(shape: tuple[int, ...]) -> None:
    """With an eps of 0, an element of zeros, as those beyond the last are taken for, was a NaN."""
    blocks = Blocks([BoxOf(shape, (0,) * len(shape), (2100, 1)[: len(shape)], 31)])
    held = np.random.default_rng(7).random((3, *blocks.boxes[0].size), np.float32) + np.float32(0.5)
    rules = np.array([(1e-3, 1, 0, 1, 0, 0, 0)], RULE)
    old = reference.invert_elements(held[0], held[1], held[2], rules[0])[1].ravel()
    expected = both_agree(blocks, [span_of(list(held), 0)], rules, reference_digest_blocks(blocks, old))
    assert expected.outcomes.tolist() == [Outcome.EXPLAINED] * 2


@pytest.mark.parametrize("count", [1, 2, 5, 7, 8, 9])
def test_the_last_combination_is_tried_where_there_are_not_too_many(count: int) -> None:
    """Elements of 2**20 are certain, and those of 1 have three candidates each."""
    master = np.full(2100, 2.0**20, np.float32)
    places = np.sort(np.random.default_rng(count).choice(2048, count, replace=False))
    master[places] = 1
    mean, square = np.zeros((2, 2100), np.float32)
    rules = np.array([(0, 1, 1e-8, 1, 0, 0, 0.01)], RULE)
    blocks = Blocks([BoxOf((3, 5000), (1, 1000), (1, 2100), 27)])
    spans = [span_of([each.reshape(1, -1) for each in (master, mean, square)], 0)]
    _, old, low, high, uncertain = reference.invert_elements(master, mean, square, rules[0])
    assert np.flatnonzero(uncertain).tolist() == places.tolist()
    assert len({int(each[places[0]]) for each in (old, low, high)}) == 3
    mixed = np.where(np.arange(2100) % 2, low, high)
    for truth in (high, mixed):
        expected = both_agree(blocks, spans, rules, reference_digest_blocks(blocks, truth))
        assert expected.outcomes[0] == (Outcome.SETTLED if count <= MOST_UNCERTAIN else Outcome.UNEXPLAINED)
        assert expected.outcomes[1] == Outcome.EXPLAINED


def test_weights_beyond_four_gibibytes_of_their_base() -> None:
    stride = (1 << 30) + 24
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    memory = torch.frombuffer(mmap.mmap(-1, 4 * (3 * stride + 64), flags=flags), dtype=torch.float32)
    far = [memory.as_strided((2, 40), (stride, 1), at) for at in (0, stride + 64, 128)]
    generator = np.random.default_rng(6)
    near = [(generator.normal(size=(2, 40)) * 0.01).astype(np.float32) for _ in far]
    for values, held in zip(far, near, strict=True):
        np.abs(held, out=held)
        values.copy_(torch.from_numpy(held))
    blocks = Blocks([BoxOf((2, 90), (0, 50), (2, 40), 29)])
    both_agree(blocks, [span_of(near, 0)], RULES, np.zeros(1, np.uint64), [span_of(far, 0)])


def store_lanes(box: Any, sides: Any, places: Any, start: Any) -> None:
    lane = tl.arange(0, 2048)
    flat, first, second, third = lanes_of(box, sides, start.to(tl.int64))
    tl.store(places + lane, flat)
    tl.store(places + 2048 + lane, first)
    tl.store(places + 4096 + lane, second)
    tl.store(places + 6144 + lane, third)


lanes_kernel: Any = triton.jit(store_lanes)


@pytest.mark.parametrize(
    "sizes", [((1 << 33) + 5, 3), (3, (1 << 33) + 5), (4095, 4096, 1 << 37), (2, 3, 1, 9999)]
)
def test_elements_of_boxes_without_end_are_found(sizes: tuple[int, ...]) -> None:
    """``sizes``: innermost first."""
    strides = np.arange(1, 1 + 4 * len(sizes)).reshape(-1, 4) * 37
    sides = np.concatenate([np.array(sizes, np.int64)[:, None], strides], 1)
    box = torch.tensor([0, 0, 11, 0, 0, len(sizes), 0, 0, 0, 0])
    for start in (0, (sizes[0] - 1) // 2048 * 2048, math.prod(sizes) - 2048 & -8):
        places = torch.zeros((4, 2048), dtype=torch.int64)
        lanes_kernel[(1,)](box, torch.from_numpy(sides), places, start)
        rest = [start + lane for lane in range(2048)]
        expected = np.zeros((4, 2048), np.int64)
        for size, own in zip(sizes, strides, strict=True):
            expected += own[:, None] * np.array([each % size for each in rest])
            rest = [each // size for each in rest]
        expected[0] += 11
        assert np.array_equal(places.numpy(), expected)


def test_no_boxes_are_no_work() -> None:
    both_agree(Blocks([]), [], RULES, np.zeros(0, np.uint64))
    assert digest_blocks(Blocks([]), torch.zeros(3, dtype=torch.int16)).tolist() == []


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_digests_of_blocks_are_those_of_the_reference(itemsize: int) -> None:
    blocks = Blocks([box for box, _ in BOXES])
    octets = np.random.default_rng(itemsize).integers(0, 256, (blocks.elements + 9) * itemsize, np.uint8)
    expected = reference_digest_blocks(blocks, octets.view(f"<u{itemsize}"))
    assert np.array_equal(digest_blocks(blocks, torch.from_numpy(octets.view(f"<i{itemsize}"))), expected)


def test_what_the_benchmark_times_is_explained_and_then_not() -> None:
    case = InversionCase(5000, "cpu")
    case.explained()
    digests = case.digests()
    case.unexplained()
    assert np.array_equal(case.digests(), digests)


def test_unsigned_buffers_are_taken() -> None:
    blocks, spans = random_spans(5)
    new, old = np.zeros((2, blocks.elements), np.uint16)
    wanted = truth_of(blocks, spans, 5)
    expected = reference.invert(blocks, spans, RULES, wanted, new, old)
    buffers = torch.zeros((2, blocks.elements), dtype=torch.uint16)
    assert same(invert(blocks, on_device(spans), RULES, wanted, buffers[0], buffers[1]), expected)
    assert np.array_equal(buffers.numpy(), np.stack([new, old]))
