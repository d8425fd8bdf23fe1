"""What kernels refuse to be given, in one line, and the example of their README."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from deltastore.errors import InputError
from deltastore.kernels.cpu import apply, check, digest_chunks, encode_changed, resolve, scatter
from deltastore.kernels.cpu.ceiling import read_both
from deltastore.kernels.grid import ChunkGrid
from deltastore.kernels.pieces import GridArray, KernelTable, Piece, Pieces
from deltastore.kernels.reference.apply import check as reference_check
from deltastore.kernels.rows import ROW, StagedBits, chunk_list

ALL = chunk_list([0, 0], [0, 1])
ROOT = Path(__file__).resolve().parents[2]


def table_of(members: int = 1) -> KernelTable:
    array = GridArray(ChunkGrid((members, 8, 6), (1, 4, 6)), 2, floating=True)
    return KernelTable([array], lambda _: np.arange(1, 2 * members, 2, dtype=np.uint64))


def pieces_of(table: KernelTable, view: Any) -> Pieces:
    return Pieces(table, [Piece(0, 0, (0, 0), view)])


BITS = np.zeros((8, 6), np.uint16)


@pytest.mark.parametrize("dtype", [">u2", "i2", "f2", "S2", "u1", "u4", "V2"])
def test_views_are_unsigned_integers_of_the_machine(dtype: str) -> None:
    with pytest.raises(InputError, match=r"uint16 is wanted, or torch\.int16") as caught:
        pieces_of(table_of(), np.zeros((8, 6), dtype))
    assert caught.value.code == "wrong_dtype"


def test_a_torch_tensor_is_for_the_gpu() -> None:
    pieces = pieces_of(table_of(), torch.zeros(8, 6, dtype=torch.int16))
    with pytest.raises(InputError, match="NumPy arrays") as caught:
        digest_chunks(pieces, ALL)
    assert caught.value.code == "wrong_memory"
    with pytest.raises(InputError, match=r"torch\.bfloat16"):
        pieces_of(table_of(), torch.zeros(8, 6, dtype=torch.bfloat16))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("chunks", np.zeros(1, np.uint32)),
        ("chunks", np.zeros(1, [("chunk", "<u4"), ("array", "<u4")])),
        ("starts", np.zeros(2, np.int32)),
        ("starts", np.zeros(2)),
        ("positions", np.zeros(0, np.int64)),
        ("positions", np.zeros((0, 2), np.uint32)),
        ("offsets", np.zeros(2, np.uint64)),
        ("bits", np.zeros(0, np.uint16)),
        ("bits", b""),
    ],
)
def test_staged_bits_are_of_their_types(name: str, wrong: Any) -> None:
    lists: dict[str, Any] = {
        "chunks": ALL[:1],
        "starts": np.zeros(2, np.int64),
        "positions": np.zeros(0, np.uint32),
        "offsets": np.zeros(2, np.int64),
        "bits": np.zeros(0, np.uint8),
    }
    scatter(pieces_of(table_of(), BITS.copy()), StagedBits(**lists))
    with pytest.raises(InputError, match=f"{name} of staged bits") as caught:
        StagedBits(**{**lists, name: wrong})
    assert caught.value.code == "wrong_dtype"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("rows", "body"),
    [
        (np.zeros(1, ROW), b"\0\0\0\0"),
        (np.zeros(1, ROW), np.zeros(4, np.int8)),
        (np.zeros(1, ROW), np.zeros((2, 2), np.uint8)),
        (np.zeros(44, np.uint8), np.zeros(4, np.uint8)),
        (np.zeros((), ROW), np.zeros(4, np.uint8)),
        ([(0, 0, 4, 1, 0, 0, b"")], np.zeros(4, np.uint8)),
        (np.zeros(1, [(name, "<u4") for name in ROW.names or ()]), np.zeros(4, np.uint8)),
    ],
)
def test_rows_and_bodies_are_of_their_types(rows: Any, body: Any) -> None:
    pieces = pieces_of(table_of(), BITS.copy())
    calls = (
        lambda: check(pieces.table, rows, body),
        lambda: reference_check(pieces.table, rows, body),
        lambda: apply(pieces, rows, body),
        lambda: resolve(pieces, rows, body),
    )
    for call in calls:
        with pytest.raises(InputError, match=r"^(rows|a body): NumPy arrays") as caught:
            call()
        assert caught.value.code == "wrong_dtype"
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("threads", [0, -1, 1025, 10**30, 2.5, "2", None, True])
def test_threads_are_a_number_within_reason(threads: Any) -> None:
    pieces = pieces_of(table_of(), BITS.copy())
    nothing = StagedBits.none()
    calls = (
        lambda: encode_changed(pieces, pieces, ALL, threads=threads),
        lambda: digest_chunks(pieces, ALL, threads=threads),
        lambda: check(pieces.table, np.zeros(0, ROW), np.zeros(0, np.uint8), threads=threads),
        lambda: scatter(pieces, nothing, threads=threads),
        lambda: read_both(BITS, BITS, threads=threads),
    )
    for call in calls:
        with pytest.raises(InputError, match="threads is a whole number from 1 to 1024") as caught:
            call()
        assert caught.value.code == "bad_argument"


def test_a_number_of_numpy_is_a_number() -> None:
    pieces = pieces_of(table_of(), BITS.copy())
    assert digest_chunks(pieces, ALL, threads=np.int64(2)).tolist() == [0, 0]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("extent", "chunk", "itemsize"),
    [
        ((1,) * 18, (1,) * 18, 2),
        ((1, 8), (1, 8), 3),
        ((1, 1 << 21), (1, (1 << 20) + 1), 2),
        ((1, 8), (1, 0), 2),
        ((1, -8), (1, 8), 2),
        ((1, 8), (1,), 2),
        ((), (), 2),
    ],
)
def test_tables_that_no_kernel_takes(extent: Any, chunk: Any, itemsize: int) -> None:
    with pytest.raises(InputError, match="no kernel takes") as caught:
        KernelTable(
            [GridArray(ChunkGrid(extent, chunk), itemsize, floating=False)], lambda _: np.ones(1, "u8")
        )
    assert caught.value.code == "bad_argument"


@pytest.mark.parametrize(
    "piece",
    [
        Piece(1, 0, (0, 0), BITS),
        Piece(0, 1, (0, 0), BITS),
        Piece(0, -1, (0, 0), BITS),
        Piece(0, 0, (1, 0), BITS),
        Piece(0, 0, (-1, 0), BITS),
        Piece(0, 0, (0,), BITS),
        Piece(0, 0, (0, 0), BITS[0]),
    ],
)
def test_pieces_outside_the_table(piece: Piece) -> None:
    with pytest.raises(InputError) as caught:
        Pieces(table_of(), [piece])
    assert caught.value.code == "bad_argument"


def test_arrays_that_cannot_be_read_side_by_side() -> None:
    with pytest.raises(InputError, match="one size"):
        read_both(BITS, BITS[:4])
    with pytest.raises(InputError, match="contiguous"):
        read_both(BITS.T, BITS.T)


def test_threads_that_are_first_at_once_share_one_table() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(40):
            table = table_of(3)
            pieces = Pieces(table, [Piece(0, member, (0, 0), BITS) for member in range(3)])
            failures: list[BaseException] = []

            def first(pieces: Pieces = pieces, failures: list[BaseException] = failures) -> None:
                try:
                    digest_chunks(pieces, ALL)
                except BaseException as error:  # noqa: BLE001
                    failures.append(error)

            threads = [threading.Thread(target=first) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert failures == []
            assert digest_chunks(pieces, ALL).tolist() == [0, 0]
    finally:
        sys.setswitchinterval(interval)


def test_the_example_of_the_readme_runs() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "kernels" / "README.md").read_text(), re.S)
    exec(compile(example, "kernels/README.md", "exec"), {})
