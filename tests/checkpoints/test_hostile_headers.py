"""Files that are no honest checkpoint: each is refused by name, before anything of its size is allocated."""

from __future__ import annotations

import json
import os
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deltastore.checkpoints import Checkpoint
from deltastore.errors import InputError

Json = Any


def refused(path: Path) -> InputError:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(InputError) as caught:
        Checkpoint.open(path)
    assert len(os.listdir("/proc/self/fd")) == before
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    return caught.value


def entry(begin: int = 0, end: int = 4, shape: Json = (2,), dtype: Json = "BF16") -> dict[str, Json]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def file_of(path: Path, header: bytes, data: bytes = b"abcd", *, length: int | None = None) -> Path:
    path.write_bytes((len(header) if length is None else length).to_bytes(8, "little") + header + data)
    return path


HEADERS: dict[str, tuple[bytes, str]] = {
    "not JSON": (b"{]", "is not JSON"),
    "not UTF-8": (b'{"\xff":1}', "is not JSON"),
    "empty": (b"", "is not JSON"),
    "spaces": (b"    ", "is not JSON"),
    "a list": (b"[]", "is not a JSON object"),
    "a number": (b"7", "is not a JSON object"),
    "two objects": (b"{}{}", "is not JSON"),
    "very deep": (b"[" * 1_000_000, "too deep|is not JSON"),
    "a long number": (b'{"a":' + b"9" * 10_000 + b"}", "is not JSON"),
    "a name twice": (
        b'{"w":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},'
        b'"w":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}',
        "lists 'w' twice",
    ),
    "a member twice": (
        b'{"w":{"dtype":"BF16","dtype":"F16","shape":[2],"data_offsets":[0,4]}}',
        "lists 'dtype' twice",
    ),
}


@pytest.mark.parametrize("name", sorted(HEADERS))
def test_a_header_that_is_no_object(tmp_path: Path, name: str) -> None:
    header, problem = HEADERS[name]
    error = refused(file_of(tmp_path / "m.safetensors", header))
    assert error.code == "bad_checkpoint"
    assert error.where == str(tmp_path / "m.safetensors")
    assert re.search(problem, str(error))


FIELDS: dict[str, Json] = {
    "overlap": {"v": entry(), "w": entry(2, 6)},
    "the same bytes twice": {"v": entry(), "w": entry()},
    "hole at the start": {"w": entry(1, 5)},
    "hole between": {"v": entry(0, 2, (1,)), "w": entry(3, 5, (1,))},
    "hole at the end": {"w": entry(0, 2, (1,))},
    "beyond the end": {"w": entry(0, 8, (4,))},
    "far beyond the end": {"w": entry(0, 2**50, (2**49,))},
    "negative begin": {"w": entry(-4, 0)},
    "negative end": {"w": entry(0, -4)},
    "end before begin": {"w": entry(4, 0)},
    "too short for its shape": {"w": entry(0, 4, (3,))},
    "too long for its shape": {"w": entry(0, 4, (1,))},
    "negative extent": {"w": entry(0, 4, (-1, -2))},
    "fraction extent": {"w": entry(0, 4, (2.0,))},
    "truth as extent": {"w": entry(0, 4, (True, 2))},
    "text extent": {"w": entry(0, 4, ("2",))},
    "no list as shape": {"w": entry(0, 4, {"2": 1})},
    "huge extents": {"w": entry(0, 4, (2**52, 2**52, 2**52))},
    "extent beyond an integer": {"w": entry(0, 4, (2**64,))},
    "huge extents and a zero": {"w": entry(0, 4, (2**64, 0))},
    "too many axes": {"w": entry(0, 4, (2,) + (1,) * 1000)},
    "one offset": {"w": {**entry(), "data_offsets": [0]}},
    "three offsets": {"w": {**entry(), "data_offsets": [0, 4, 4]}},
    "fraction offsets": {"w": {**entry(), "data_offsets": [0.0, 4.0]}},
    "text as offsets": {"w": {**entry(), "data_offsets": "04"}},
    "offsets beyond an integer": {"w": entry(2**64, 2**64 + 4)},
    "no dtype": {"w": {"shape": [2], "data_offsets": [0, 4]}},
    "no shape": {"w": {"dtype": "BF16", "data_offsets": [0, 4]}},
    "no offsets": {"w": {"dtype": "BF16", "shape": [2]}},
    "one member more": {"w": {**entry(), "strides": [1]}},
    "no object": {"w": 4},
    "nothing": {"w": None},
    "an empty name": {"": entry()},
    "a long name": {"w" * 1025: entry()},
    "half a character as name": {"\ud800": entry()},
    "metadata that is a list": {"__metadata__": [], "w": entry()},
    "metadata of numbers": {"__metadata__": {"format": 1}, "w": entry()},
    "no tensors but data": {},
}


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_a_header_that_breaks_a_rule(tmp_path: Path, name: str) -> None:
    header = json.dumps(FIELDS[name]).encode()
    assert refused(file_of(tmp_path / "m.safetensors", header)).code == "bad_checkpoint"


@pytest.mark.parametrize(
    "dtype", ["F4", "F6_E2M3", "F6_E3M2", "bf16", "FOO", "", None, 16, ["BF16"], "X" * 10_000]
)
def test_an_element_type_that_is_not_carried(tmp_path: Path, dtype: Json) -> None:
    header = json.dumps({"w": entry(dtype=dtype)}).encode()
    error = refused(file_of(tmp_path / "m.safetensors", header))
    assert error.code == "wrong_dtype"
    assert "'w'" in str(error)


@pytest.mark.parametrize("content", [b"", b"\0" * 7])
def test_a_file_too_short_for_a_length(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)
    assert "too few" in str(refused(path))


@pytest.mark.parametrize("length", [99, 10_000, 99_999_999, 100_000_001, 2**40, 2**63, 2**64 - 1])
def test_a_header_longer_than_the_file_is_not_allocated(tmp_path: Path, length: int) -> None:
    path = file_of(tmp_path / "m.safetensors", b"{}", b"", length=length)
    tracemalloc.start()
    error = refused(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.code == "bad_checkpoint"
    assert peak < 1 << 20


def test_a_tensor_of_many_bytes_in_a_short_file_is_not_allocated(tmp_path: Path) -> None:
    header = json.dumps({"w": entry(0, 2**44, (2**43,))}).encode()
    path = file_of(tmp_path / "m.safetensors", header)
    tracemalloc.start()
    error = refused(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.code == "bad_checkpoint"
    assert peak < 1 << 20


def test_a_path_that_is_absent(tmp_path: Path) -> None:
    assert "No such file" in str(refused(tmp_path / "m.safetensors"))


def test_a_folder_without_safetensors(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    assert "no *.safetensors file" in str(refused(tmp_path))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.safetensors")
    assert "not a regular file" in str(refused(tmp_path))


def test_a_folder_by_the_name_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "m.safetensors").mkdir()
    assert "not a regular file" in str(refused(tmp_path))


def test_a_dangling_link(tmp_path: Path) -> None:
    (tmp_path / "m.safetensors").symlink_to(tmp_path / "gone")
    assert "No such file" in str(refused(tmp_path))


def good(path: Path, *names: str) -> None:
    fields = {name: entry(4 * at, 4 * at + 4) for at, name in enumerate(names)}
    file_of(path, json.dumps(fields).encode(), b"abcd" * len(names))


def test_a_tensor_in_two_files(tmp_path: Path) -> None:
    good(tmp_path / "a.safetensors", "v", "w")
    good(tmp_path / "b.safetensors", "w")
    error = refused(tmp_path)
    assert error.code == "bad_checkpoint"
    assert "'w' is also in 'a.safetensors'" in str(error)


INDEXES: dict[str, Json] = {
    "no map": {"metadata": {}},
    "an empty map": {"weight_map": {}},
    "a list": {"weight_map": ["w"]},
    "no file name": {"weight_map": {"w": 7}},
    "the folder above": {"weight_map": {"w": "../secret.safetensors"}},
    "an absolute path": {"weight_map": {"w": "/secret.safetensors"}},
    "a folder below": {"weight_map": {"w": "below/secret.safetensors"}},
    "a hidden file": {"weight_map": {"w": ".safetensors"}},
    "a file that is no safetensors": {"weight_map": {"w": "config.json"}},
    "a NUL": {"weight_map": {"w": "a\0.safetensors"}},
    "a line break": {"weight_map": {"w": "a.safetensors\n"}},
    "a file that is absent": {"weight_map": {"w": "c.safetensors"}},
    "a tensor that is absent": {"weight_map": {"w": "a.safetensors", "x": "a.safetensors"}},
    "a tensor of another file": {"weight_map": {"w": "b.safetensors", "v": "b.safetensors"}},
}


@pytest.mark.parametrize("name", sorted(INDEXES))
def test_an_index_that_breaks_a_rule(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    (folder / "below").mkdir(parents=True)
    for secret in (tmp_path, folder / "below"):
        good(secret / "secret.safetensors", "w")
    good(folder / "a.safetensors", "w")
    good(folder / "b.safetensors", "v")
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors.index.json").write_text(json.dumps(INDEXES[name]))
    assert refused(folder).code == "bad_checkpoint"


def index_text(path: Path) -> None:
    path.write_text('{"weight_map": {"w": "a.safetensors", "w": "b.safetensors"}}')


def index_folder(path: Path) -> None:
    path.mkdir()


def index_dangling(path: Path) -> None:
    path.symlink_to("gone.json")


def index_sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 100_000_001)


@pytest.mark.parametrize("make", [index_text, index_folder, index_dangling, index_sparse])
def test_an_index_that_is_none(tmp_path: Path, make: Callable[[Path], None]) -> None:
    good(tmp_path / "a.safetensors", "w")
    make(tmp_path / "model.safetensors.index.json")
    assert refused(tmp_path).code == "bad_checkpoint"
