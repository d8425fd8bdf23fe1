"""Following a stream: what is there, what lands, and when it ends."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.running import command


def versions(lines: list[Any]) -> list[int]:
    return [facts["version"] for facts in lines]


@pytest.mark.parametrize(("after", "seen"), [("-1", [0, 1]), ("0", [1]), ("1", []), ("7", [])])
def test_from_begins_after_that_version(deltastore: Run, stream: Path, after: str, seen: list[int]) -> None:
    ran = deltastore("follow", stream, "--from", after, "--timeout", "0", "--json")
    assert ran.status == 0
    assert versions(ran.lines) == seen


def test_by_default_only_new_versions_are_printed(deltastore: Run, stream: Path) -> None:
    ran = deltastore("follow", stream, "--timeout", "0.05", "--interval", "0.01")
    assert (ran.status, ran.out, ran.err) == (0, "", "")


def test_count_ends_it(deltastore: Run, stream: Path) -> None:
    ran = deltastore("follow", stream, "--from", "-1", "--count", "1", "--json")
    assert ran.status == 0
    assert versions(ran.lines) == [0]


def test_too_few_versions_in_time_is_status_10(deltastore: Run, stream: Path) -> None:
    ran = deltastore("follow", stream, "--from", "0", "--count", "2", "--timeout", "0", "--json")
    ran.fails_with(10, "1 of 2 versions landed within 0 s")
    assert ran.lines[0]["version"] == 1
    assert ran.lines[1]["error"]["code"] == "no_version"


def test_a_line_says_what_landed(deltastore: Run, stream: Path) -> None:
    first, second = deltastore("follow", stream, "--from", "-1", "--timeout", "0").out.splitlines()
    assert "  version 0 (anchor): 100 % changed, " in first
    assert "  version 1 (delta on 0): " in second
    assert second.endswith(", step 100")


def test_versions_are_printed_as_they_land(deltastore: Run, stream: Path, third: Path, second: Path) -> None:
    following = subprocess.Popen(
        command("follow", stream, "--from", "0", "--count", "3", "--interval", "0.01", "--json"),
        stdout=subprocess.PIPE,
        text=True,
    )
    with following:
        assert following.stdout is not None
        assert json.loads(following.stdout.readline())["version"] == 1
        assert deltastore("publish", stream, third, "--version", "5").status == 0
        facts = json.loads(following.stdout.readline())
        assert (facts["version"], facts["kind"], facts["base"]) == (5, "delta", 1)
        assert deltastore("publish", stream, second, "--meta", "note=third").status == 0
        facts = json.loads(following.stdout.readline())
        assert (facts["version"], facts["metadata"]) == (6, {"note": "third"})
        assert following.wait(timeout=60) == 0


@pytest.mark.parametrize(
    "options",
    [("--from", "-2"), ("--count", "0"), ("--timeout", "-1"), ("--timeout", "nan"), ("--interval", "0")],
)
def test_options_out_of_range(deltastore: Run, stream: Path, options: tuple[str, ...]) -> None:
    deltastore(
        "follow", stream, *options, "--timeout=0" if options[0] != "--timeout" else "--count=1"
    ).fails_with(2, options[0])
