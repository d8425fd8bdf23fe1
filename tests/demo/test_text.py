"""The text of the demo: found on this machine, and cut into windows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from deltastore.demo.text import VOCABULARY, source_text, windows
from deltastore.errors import InputError


def test_the_standard_library_is_text_enough() -> None:
    text = source_text()
    assert text.dtype == np.uint8
    assert 2**18 <= len(text) <= 2**22
    assert text.max() < VOCABULARY
    assert b"\ndef " in text.tobytes()


def test_files_follow_each_other_by_name(tmp_path: Path) -> None:
    (tmp_path / "b.py").write_bytes(b"second" + b"." * 2**18)
    (tmp_path / "a.py").write_bytes(b"first")
    (tmp_path / "a.txt").write_bytes(b"no source")
    assert source_text(tmp_path).tobytes().startswith(b"firstsecond..")


def test_no_more_is_read_than_is_used(tmp_path: Path) -> None:
    for name in ("a.py", "b.py", "c.py"):
        (tmp_path / name).write_bytes(name[:1].encode() * 3 * 2**20)
    text = source_text(tmp_path)
    assert len(text) == 2**22
    assert text[3 * 2**20 - 1 :].tobytes() == b"a" + b"b" * 2**20


def test_a_python_without_sources_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"x" * (2**18 - 1))
    with pytest.raises(InputError, match=r"holds 262143 bytes .* needs 262144") as error:
        source_text(tmp_path)
    assert (error.value.code, error.value.where) == ("bad_argument", str(tmp_path))


def test_windows_are_pieces_of_the_text() -> None:
    text = np.arange(200, dtype=np.uint8)
    drawn = windows(text, np.random.default_rng(3), count=50, length=7)
    assert drawn.shape == (50, 7)
    assert drawn.dtype == np.int64
    assert (drawn == drawn[:, :1] + np.arange(7)).all()
    assert len(set(drawn[:, 0].tolist())) > 20
    again = windows(text, np.random.default_rng(3), count=50, length=7)
    assert (again == drawn).all()


def test_a_window_may_start_first_and_end_last() -> None:
    text = np.array([5, 6, 7], np.uint8)
    drawn = windows(text, np.random.default_rng(0), count=64, length=2)
    assert {tuple(window) for window in drawn.tolist()} == {(5, 6), (6, 7)}
