from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deltastore.cli import main
from deltastore.stores.memory import MEMORY_STORES
from tests.cli.checkpoints import first_tensors, second_tensors, third_tensors, write_file, write_folder
from tests.cli.running import Ran, run_here

Run = Callable[..., Ran]


@pytest.fixture
def deltastore(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command line in this process."""

    def run(*arguments: str | Path) -> Ran:
        return run_here(capsys, *arguments)

    return run


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """A checkpoint folder: what the stream begins with."""
    return write_folder(tmp_path / "checkpoint", first_tensors())


@pytest.fixture
def second(tmp_path: Path) -> Path:
    return write_file(tmp_path / "second.safetensors", second_tensors())


@pytest.fixture
def third(tmp_path: Path) -> Path:
    return write_file(tmp_path / "third.safetensors", third_tensors())


@pytest.fixture(scope="session")
def made_stream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("made")
    checkpoint = write_folder(home / "checkpoint", first_tensors())
    second = write_file(home / "second.safetensors", second_tensors())
    stream = home / "stream"
    assert main(["init", str(stream), "--from", str(checkpoint)]) == 0
    assert main(["publish", str(stream), str(second), "--step", "100"]) == 0
    return stream


@pytest.fixture
def stream(tmp_path: Path, made_stream: Path) -> Path:
    """A stream of its own with versions 0 and 1: slots 0 birth, 1 epoch, 2 anchor, 3 epoch, 4 delta."""
    return Path(shutil.copytree(made_stream, tmp_path / "stream"))


@pytest.fixture
def memory_url() -> Iterator[str]:
    """A store in the memory of this process, given back at the end."""
    yield "memory://command-line"
    MEMORY_STORES.pop("command-line", None)
