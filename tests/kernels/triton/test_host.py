"""What the host prepares for the kernels, against the reference: windows and the choice of widths."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from deltastore.errors import InputError
from deltastore.kernels.pieces import Piece, Pieces
from deltastore.kernels.reference.elias_fano import best_low_bits as reference_low_bits
from deltastore.kernels.reference.held import HeldChunk
from deltastore.kernels.reference.patch import WIDTHS, _choose_widths
from deltastore.kernels.triton import bits_of
from deltastore.kernels.triton.digest import flat_windows
from deltastore.kernels.triton.widths import best_low_bits, chosen_widths
from deltastore.kernels.triton.windows import Windows, windows_of
from tests.kernels.triton.interpreted.models import (
    FORMS,
    Shape,
    all_chunks,
    model_of,
    random_weights,
    table_of,
)


def elements_in(windows: Windows, number: int) -> list[tuple[int, int]]:
    """(position, address) of every element in the windows of chunk ``number``, in order of windows."""
    found: list[tuple[int, int]] = []
    for window in windows.windows[windows.first[number] : windows.first[number + 1]]:
        positions = np.arange(window[5], window[6] + 1)
        axes = windows.axes[window[3] : window[3] + window[4]]
        inside = np.ones(len(positions), bool)
        address, rest = np.full(len(positions), window[0]), positions
        for place, (extent, low, size, stride, _) in enumerate(axes):
            here = rest % extent if place + 1 < len(axes) else rest
            rest = rest // extent
            inside &= (here >= low) & (here < low + size)
            address = address + (here - low) * stride
        assert int(inside.sum()) == window[7]
        found += zip(positions[inside].tolist(), address[inside].tolist(), strict=True)
    return found


@pytest.mark.parametrize("forms", [("plain",), FORMS, ("twice", "strided")])
def test_windows_hold_the_elements_that_the_reference_holds(forms: tuple[str, ...]) -> None:
    table = table_of()
    model = model_of(table, 1, forms, random_weights(table, 1))
    chunks = all_chunks(table)
    windows = windows_of(model.on_device, chunks)
    for number, (array, chunk) in enumerate(chunks.tolist()):
        expected: list[tuple[int, int]] = []
        for positions, view in HeldChunk(model.on_host, array, chunk).parts:
            base = view.__array_interface__["data"][0]
            steps = np.zeros(view.shape, np.int64)
            for axis, stride in enumerate(view.strides):
                shape = [1] * view.ndim
                shape[axis] = -1
                steps += (np.arange(view.shape[axis]) * stride).reshape(shape)
            expected += zip(positions.ravel().tolist(), (base + steps).ravel().tolist(), strict=True)
        assert elements_in(windows, number) == expected


def test_a_contiguous_chunk_is_one_window_of_one_axis() -> None:
    table = table_of()
    model = model_of(table, 1, ("plain",), random_weights(table, 1))
    windows = windows_of(model.on_device, all_chunks(table)[:4])
    assert windows.windows[:, 4].tolist() == [1, 1, 1, 1]


def test_one_row_of_a_chunk_is_one_axis() -> None:
    table = table_of((Shape((1, 8, 30), (1, 8, 30), 2),))
    row = torch.zeros(1, 64, dtype=torch.int16)[:, :30]
    windows = windows_of(Pieces(table, [Piece(0, 0, (5, 0), row)]), all_chunks(table))
    assert windows.axes.tolist() == [[240, 150, 30, 2, 1]]
    assert windows.windows[0, 5:].tolist() == [150, 179, 30]


@pytest.mark.parametrize(("start", "flat"), [(0, True), (8, True), (1, False), (4, False)])
def test_whole_vectors_are_read_only_where_blocks_start_at_one(start: int, flat: bool) -> None:
    table = table_of((Shape((1, 4000), (1, 4000), 2),))
    memory = torch.zeros(4096, dtype=torch.int16)
    assert memory.data_ptr() % 16 == 0
    pieces = Pieces(table, [Piece(0, 0, (0,), memory[start : start + 4000])])
    windows = windows_of(pieces, all_chunks(table), by_memory=True)
    assert flat_windows(windows, np.array([2])).tolist() == [flat]


def test_low_bits_are_those_of_the_reference() -> None:
    generator = np.random.default_rng(0)
    elements = np.concatenate([generator.integers(1, 2**20 + 1, 3000), [1, 2, 32, 33, 2**20, 2**20]])
    count = np.concatenate([1 + (elements[:-1] - 1) * generator.random(len(elements) - 1) ** 6, [1]])
    count = count.astype(np.int64)
    expected = [reference_low_bits(*pair) for pair in zip(count.tolist(), elements.tolist(), strict=True)]
    assert best_low_bits(count, elements).tolist() == expected


def test_widths_are_those_of_the_reference() -> None:
    generator = np.random.default_rng(1)
    tallies, universes, expected = [], [], []
    for _ in range(400):
        elements = int(2 ** generator.uniform(3, 20))
        left = int(generator.integers(1, elements + 1))
        tally = np.zeros(6, np.int64)
        for width in generator.permutation(6)[: generator.integers(1, 7)]:
            tally[width] = min(int(left * generator.random() ** 3), left)
            left -= tally[width]
        if tally.sum() == 0:
            tally[generator.integers(6)] = 1
        tallies.append(np.concatenate([[0], np.cumsum(tally)]))
        universes.append(elements)
        needed = np.repeat(np.array(WIDTHS, np.uint8), tally)
        expected.append(_choose_widths(needed, elements))
    choice = chosen_widths(np.array(tallies), np.array(universes))
    for number, (widths, size) in enumerate(expected):
        upto = choice.upto[number, : choice.runs[number]]
        assert ([WIDTHS[place - 1] for place in upto], choice.size[number]) == (list(widths), size)


@pytest.mark.parametrize(
    "dtype",
    ["bfloat16", "float16", "float8_e4m3fn", "float32", "float64", "complex64", "bool", "uint8", "int64"],
)
def test_bits_share_memory_with_the_tensor(dtype: str) -> None:
    tensor = torch.zeros(4, 6).to(getattr(torch, dtype))
    bits = bits_of(tensor.t())
    assert bits.shape == (6, 4)
    assert not bits.dtype.is_floating_point
    assert bits.data_ptr() == tensor.data_ptr()
    bits[5, 3] = 1
    assert bits_of(tensor)[3, 5] == 1


def test_tensors_without_plain_memory_are_refused() -> None:
    for tensor, code in (
        (torch.zeros(2, dtype=torch.complex128), "wrong_dtype"),
        (torch.zeros(2, 2).to_sparse(), "wrong_memory"),
        (torch.zeros(2, device="meta"), "wrong_memory"),
        (torch.zeros(2, dtype=torch.complex64).conj(), "wrong_memory"),
    ):
        with pytest.raises(InputError) as refused:
            bits_of(tensor)
        assert refused.value.code == code
