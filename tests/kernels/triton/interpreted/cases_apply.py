"""Decoding kernels against the reference, in Triton's interpreter."""

from __future__ import annotations

import mmap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from deltastore.errors import InputError, PatchError
from deltastore.kernels.pieces import KernelTable, Piece, Pieces
from deltastore.kernels.reference import apply as reference
from deltastore.kernels.reference.encode import encode_changed
from deltastore.kernels.reference.patch import WIDTHS, decode_patch
from deltastore.kernels.rows import REASONS, EncodedPatches, Encoding, offsets_of
from deltastore.kernels.triton import DevicePack, apply, check, mismatches
from tests.kernels.triton.interpreted.models import (
    FORMS,
    Shape,
    all_chunks,
    changed_weights,
    model_of,
    random_weights,
    table_of,
)

Weights = dict[tuple[int, int], NDArray[Any]]


def pack_between(table: KernelTable, before: Weights, after: Weights) -> EncodedPatches:
    old, new = (model_of(table, 0, ("plain",), weights).on_host for weights in (before, after))
    return encode_changed(new, old, all_chunks(table))


def every(step: int, patches: EncodedPatches) -> EncodedPatches:
    """Each ``step``-th of them, since a task takes the interpreter 20 ms."""
    at = offsets_of(patches.rows)
    chosen = range(0, len(patches.rows), step)
    body = np.concatenate([patches.body[at[number] : at[number + 1]] for number in chosen])
    return EncodedPatches(patches.rows[::step], body, patches.changed[::step])


def widths_in(patches: EncodedPatches) -> set[int]:
    found: set[int] = set()
    at = 0
    for row in patches.rows:
        patch = patches.body[at : at + int(row["length"])]
        at += int(row["length"])
        if row["encoding"] == Encoding.RUNS:
            found.update(patch[4 : 4 + 8 * int(patch[0]) : 8].tolist())
    return found


@pytest.mark.parametrize(
    ("seed", "density", "forms"),
    [(0, 0.03, FORMS), (1, 0.25, ("twice", "columns")), (2, 1.0, FORMS), (3, 0.001, ("plain",))],
)
def test_a_pack_does_what_the_reference_does(seed: int, density: float, forms: tuple[str, ...]) -> None:
    table = table_of()
    before = random_weights(table, seed)
    whole = pack_between(table, before, changed_weights(table, before, seed + 100, density))
    patches = every(4 if density > 0.1 else 1, whole)
    model = model_of(table, seed, forms, before)
    start = model.content()

    pack = DevicePack(model.on_device, patches.rows, patches.body)
    differences = check(pack)
    assert model.content() == start
    expected = reference.resolve(model.on_host, patches.rows, patches.body)[1]
    assert differences.tolist() == expected.tolist()

    apply(pack)
    assert mismatches(pack) == 0
    result = model.content()
    model.restore(start)
    reference.apply(model.on_host, patches.rows, patches.body)
    assert result == model.content()


def test_the_corpus_has_every_width_and_the_raw_form() -> None:
    table = table_of()
    before = random_weights(table, 2)
    dense = pack_between(table, before, changed_weights(table, before, 102, 1.0))
    sparse = pack_between(table, before, changed_weights(table, before, 100, 0.03))
    assert Encoding.RAW in dense.rows["encoding"]
    assert widths_in(sparse) | widths_in(dense) == set(WIDTHS)


NARROW = table_of((Shape((2, 12, 50), (1, 12, 50), 2), Shape((1, 90), (1, 90), 4, floating=False)))


def narrow_steps() -> tuple[Weights, EncodedPatches]:
    before = random_weights(NARROW, 5)
    after = {place: bits.copy() for place, bits in before.items()}
    for bits in after.values():
        flat = bits.reshape(-1)
        flat[:] = np.where((flat & 0xFF) == 0xFF, flat, flat + 1)
        flat[::3] = before[0, 0].reshape(-1)[0]
    return before, pack_between(NARROW, before, after)


def test_applying_twice_is_applying_once() -> None:
    before, patches = narrow_steps()
    model = model_of(NARROW, 5, ("plain", "transposed"), before)
    pack = DevicePack(model.on_device, patches.rows, patches.body)
    check(pack)
    assert mismatches(pack) > 0
    apply(pack)
    once = model.content()
    assert check(pack).tolist() == [0] * len(patches.rows)
    apply(pack)
    assert model.content() == once


def with_a_wrong_element(table: KernelTable, patches: EncodedPatches, model: Any) -> int:
    """Change one element of the last row that has a run of width 2 so that its offset is -2; its row."""
    at = offsets_of(patches.rows)
    for number in reversed(range(len(patches.rows))):
        row = patches.rows[number]
        form = table.arrays[row["array"]]
        box = form.grid.box(int(row["chunk"]))
        data = patches.body[at[number] : at[number + 1]]
        decoded = decode_patch(data, int(row["encoding"]), form, box.elements)
        if decoded.runs and decoded.runs[0].width == 2:
            position = int(decoded.runs[0].positions[-1])
            members, flat = form.grid.locate(box, np.array([position], np.uint32))
            (piece,) = model.on_host.of(int(row["array"]), int(members[0]))
            at_place = np.unravel_index(int(flat[0]), piece.view.shape)
            residue = int(decoded.runs[0].residues[-1])
            value = (residue - 2) & 3
            if form.floating:
                value |= 0x100
            piece.view[at_place] = value
            return number
    raise AssertionError("no run of width 2")


def test_a_pack_that_does_not_fit_is_refused_before_any_write() -> None:
    before, patches = narrow_steps()
    model = model_of(NARROW, 5, ("plain", "transposed"), before)
    number = with_a_wrong_element(NARROW, patches, model)
    start = model.content()
    pack = DevicePack(model.on_device, patches.rows, patches.body)
    with pytest.raises(PatchError) as refused:
        check(pack)
    with pytest.raises(PatchError) as expected:
        reference.resolve(model.on_host, patches.rows, patches.body)
    assert (refused.value.row, refused.value.reason) == (number, REASONS[14])
    assert expected.value.row == number
    with pytest.raises(InputError, match="check first"):
        apply(pack)
    assert model.content() == start


def test_what_stops_fitting_after_the_check_is_left_alone_and_counted() -> None:
    before, patches = narrow_steps()
    model = model_of(NARROW, 5, ("plain",), before)
    pack = DevicePack(model.on_device, patches.rows, patches.body)
    check(pack)
    with_a_wrong_element(NARROW, patches, model)
    wrong = model.content()
    apply(pack)
    assert mismatches(pack) == 1
    changed = np.frombuffer(model.content(), np.uint8) != np.frombuffer(wrong, np.uint8)
    assert changed.any()


def refused_row(call: Callable[..., object], *arguments: object) -> int | None:
    try:
        call(*arguments)
    except PatchError as error:
        return error.row
    return None


def test_a_body_that_breaks_a_rule_is_refused() -> None:
    before, patches = narrow_steps()
    model = model_of(NARROW, 5, ("plain",), before)
    start = model.content()
    generator = np.random.default_rng(11)
    refused = 0
    for _ in range(60):
        body, rows = patches.body.copy(), patches.rows.copy()
        body[generator.integers(len(body))] ^= 1 << generator.integers(8)
        expected = refused_row(reference.check, NARROW, rows, body)
        assert refused_row(DevicePack, model.on_device, rows, body) == expected
        refused += expected is not None
    assert refused > 10
    assert model.content() == start


@pytest.mark.parametrize("field", ["array", "chunk", "length", "count", "encoding"])
def test_a_row_that_lies_is_refused(field: str) -> None:
    before, patches = narrow_steps()
    model = model_of(NARROW, 5, ("plain",), before)
    for value in (0xFFFFFFFF, 7, 0x40000000):
        rows = patches.rows.copy()
        rows[1][field] = value
        with pytest.raises(PatchError) as expected:
            reference.check(NARROW, rows, patches.body)
        with pytest.raises(PatchError) as found:
            DevicePack(model.on_device, rows, patches.body)
        assert found.value.row == expected.value.row


def test_no_rows_are_no_work() -> None:
    before, patches = narrow_steps()
    model = model_of(NARROW, 5, ("plain",), before)
    pack = DevicePack(model.on_device, patches.rows[:0], patches.body[:0])
    assert check(pack).tolist() == []
    apply(pack)
    assert mismatches(pack) == 0


def test_the_callers_buffers_may_change_after_the_call() -> None:
    before, patches = narrow_steps()
    model = model_of(NARROW, 5, ("plain",), before)
    rows, body = patches.rows.copy(), patches.body.copy()
    pack = DevicePack(model.on_device, rows, body)
    rows["chunk"], body[:] = 9, 0xFF
    assert check(pack).tolist() == patches.rows["difference"].tolist()


def test_weights_beyond_four_gibibytes_of_their_base() -> None:
    table = table_of((Shape((1, 2, 40), (1, 2, 40), 2),))
    before = random_weights(table, 1)
    patches = pack_between(table, before, changed_weights(table, before, 2, 0.5))
    stride = (1 << 31) + 24
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    memory = mmap.mmap(-1, 2 * (stride + 64), flags=flags)
    whole = np.frombuffer(memory, np.int16)
    far = torch.from_numpy(whole).as_strided((2, 40), (stride, 1))
    far.numpy().view(np.uint16)[...] = before[0, 0]
    pieces = Pieces(table, [Piece(0, 0, (0, 0), far)])
    pack = DevicePack(pieces, patches.rows, patches.body)
    assert check(pack).tolist() == patches.rows["difference"].tolist()
    apply(pack)
    assert mismatches(pack) == 0
    near = before[0, 0].copy()
    reference.apply(Pieces(table, [Piece(0, 0, (0, 0), near)]), patches.rows, patches.body)
    assert np.array_equal(far.numpy().view(np.uint16), near)


def test_pieces_that_are_not_tensors_are_refused() -> None:
    before, patches = narrow_steps()
    model = model_of(NARROW, 5, ("plain",), before)
    with pytest.raises(InputError, match="bits_of") as refused:
        DevicePack(model.on_host, patches.rows, patches.body)
    assert refused.value.code == "wrong_memory"


def test_the_first_of_two_pieces_says_what_the_digest_was() -> None:
    table = table_of((Shape((1, 6, 50), (1, 6, 50), 2),))
    before = random_weights(table, 1)
    patches = pack_between(table, before, random_weights(table, 9))
    assert patches.rows["encoding"].tolist() == [Encoding.RAW]
    model = model_of(table, 0, ("twice",), before)
    model.on_host.of(0, 0)[1].view[...] ^= 0x11
    pack = DevicePack(model.on_device, patches.rows, patches.body)
    expected = reference.resolve(model.on_host, patches.rows, patches.body)[1]
    assert check(pack).tolist() == expected.tolist()
