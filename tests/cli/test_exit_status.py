"""The exit status of a real process, for every status that the help promises."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

import deltastore
from deltastore.errors import DeltastoreError
from tests.cli.running import command, run_apart
from tests.cli.tampering import flip, only, record_path, rewrite

VERBS = (
    *("init", "publish", "log", "show", "export", "validate", "follow", "doctor", "demo"),
    *("inspect", "stats", "diff", "why"),
)
STATUSES = ("0 ", "1 ", "2 ", "10 ", "11 ", "12 ", "13 ", "130 ")


def every_error(kind: type[DeltastoreError]) -> set[type[DeltastoreError]]:
    return {kind}.union(*(every_error(below) for below in kind.__subclasses__()))


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_every_help_ends_with_the_exit_statuses(verb: str) -> None:
    ran = run_apart(*([verb] if verb else []), "--help")
    assert ran.status == 0
    assert ran.err == ""
    _, ending = ran.out.split("Exit status:\n")
    lines = [line.strip() for line in ending.splitlines()]
    assert len(lines) == len(STATUSES)
    assert all(line.startswith(status) for line, status in zip(lines, STATUSES, strict=True))


def test_the_help_lists_every_command_and_every_status_that_an_error_has() -> None:
    listed = [line.split()[0] for line in run_apart("--help").out.splitlines() if line.startswith("  ")]
    assert set(VERBS) <= set(listed)
    assert {str(kind.exit_status) for kind in every_error(DeltastoreError)} <= set(listed)


def test_version_is_that_of_the_package() -> None:
    ran = run_apart("--version")
    assert (ran.status, ran.out, ran.err) == (0, f"deltastore {deltastore.__version__}\n", "")


def test_help_loads_nothing_heavy() -> None:
    program = (
        "import sys, deltastore.cli\n"
        "assert deltastore.cli.main(['--help']) == 0\n"
        "print(*sys.modules, file=sys.stderr)\n"
    )
    ran = subprocess.run([*command()[:1], "-c", program], capture_output=True, text=True, check=True)
    heavy = {"torch", "transformers", "tensorstore", "zarr", "numpy", "pydantic", "rich", "asyncio"}
    assert heavy.isdisjoint(name.partition(".")[0] for name in ran.stderr.split())


def test_0_success(stream: Path) -> None:
    ran = run_apart("validate", stream)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("ok: 2 versions, 5 records, 1 anchor, 1 pack, ")


def test_1_error(stream: Path, tmp_path: Path) -> None:
    run_apart("publish", stream, tmp_path / "missing").fails_with(1, "missing")


@pytest.mark.parametrize(
    "line", ["", "no-such-verb", "log", "log URL --no-such-option", "log URL --limit many"]
)
def test_2_usage(line: str) -> None:
    run_apart(*line.split()).fails_with(2, "--help")


def test_10_no_such_stream(tmp_path: Path) -> None:
    run_apart("log", tmp_path / "nothing").fails_with(10, "holds no stream")


def test_11_conflict(stream: Path, second: Path) -> None:
    run_apart("publish", stream, second, "--version", "1").fails_with(11, "not above the tip")


def test_12_corrupt(stream: Path) -> None:
    pack = only(stream, "packs/*/*")
    flip(pack, 50)
    run_apart("validate", stream).fails_with(12, pack.name)


def test_13_unsupported_version(stream: Path) -> None:
    rewrite(record_path(stream, 0), format=2)
    run_apart("log", stream).fails_with(13, "upgrade deltastore")


def test_130_interrupted(stream: Path) -> None:
    following = subprocess.Popen(
        command("follow", stream, "--from", "0"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with following:
        assert following.stdout is not None
        assert following.stderr is not None
        assert "version 1 " in following.stdout.readline()
        following.send_signal(signal.SIGINT)
        assert following.wait(timeout=60) == 130
        assert following.stderr.read() == ""


def test_a_reader_of_stdout_that_leaves_gets_no_traceback(stream: Path) -> None:
    logging = subprocess.Popen(
        command("log", stream, "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with logging:
        assert logging.stdout is not None
        assert logging.stderr is not None
        logging.stdout.close()
        assert logging.wait(timeout=60) == 1
        assert logging.stderr.read() == ""


def test_output_that_cannot_be_written_is_one_line(stream: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command("log", stream, "--json"), stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr == "deltastore: error: cannot go on: No space left on device\n"
