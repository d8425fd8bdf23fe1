"""``deltastore validate``: levels, versions, notes, the table of checks, and a run that is stopped."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deltastore.cli.validate import how_to_go_on
from deltastore.validate import CHECKS, Level
from tests.cli.conftest import Run
from tests.cli.running import Ran
from tests.cli.tampering import fields_of, flip, only, record_path, rewrite

TIP = 4
"""The slot of version 1."""


@pytest.mark.parametrize(
    ("options", "level"),
    [
        ((), "content"),
        (("--level", "structure"), "structure"),
        (("--level", "content"), "content"),
        (("--level", "deep"), "deep"),
        (("--deep",), "deep"),
        (("--deep", "--level", "deep"), "deep"),
    ],
)
def test_levels(deltastore: Run, stream: Path, options: tuple[str, ...], level: str) -> None:
    ran = deltastore("validate", stream, *options)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("ok: 2 versions, 5 records, 1 anchor, 1 pack, ")
    assert f"level {level}" in ran.out
    facts = deltastore("validate", stream, *options, "--json").json
    assert (facts["ok"], facts["level"], facts["sound"], facts["found"]) == (True, level, 1, 0)
    for name, check in facts["checks"].items():
        assert check["failed"] == 0
        judged = CHECKS[name].judged
        if not isinstance(judged, Level) or judged > Level[level.upper()]:
            assert check["passed"] == 0
        elif name not in ("DS065",):
            assert check["passed"] > 0, name


def test_a_flipped_pack_is_no_matter_of_structure(deltastore: Run, stream: Path) -> None:
    pack = only(stream, "packs/*/*")
    flip(pack, pack.stat().st_size - 1)
    assert deltastore("validate", stream, "--level", "structure").status == 0
    ran = deltastore("validate", stream, "--jobs", "1")
    ran.fails_with(12, pack.name)
    head, problem, newest = ran.out.splitlines()
    assert head.startswith("corrupt: 1 problem in 2 versions")
    assert problem.split()[:4] == ["DS061", "bad_hash", "version", "1,"]
    assert "byte " in problem
    assert newest == "newest sound version: 0"
    facts = deltastore("validate", stream, "--json").json
    (found,) = facts["problems"]
    assert (found["check"], found["version"], found["where"]) == ("DS061", 1, f"packs/{1:020d}/{pack.name}")
    assert found["offset"] > 0
    assert found["tensor"]
    assert facts["checks"]["DS061"]["failed"] == 1
    assert facts["sound"] == 0


@pytest.mark.parametrize("version", ["0", "1", "latest"])
def test_one_version(deltastore: Run, stream: Path, version: str) -> None:
    facts = deltastore("validate", stream, "--version", version, "--json").json
    assert (facts["ok"], facts["versions"]) == (True, 1 if version == "0" else 2)
    pack = only(stream, "packs/*/*")
    flip(pack, 100)
    assert deltastore("validate", stream, "--version", version).status == (0 if version == "0" else 12)


def test_a_log_that_is_broken_behind_the_version(deltastore: Run, stream: Path) -> None:
    flip(record_path(stream, TIP), 30)
    ran = deltastore("validate", stream, "--version", "0")
    ran.fails_with(12, record_path(stream, TIP).name)
    assert "version 0 and what it builds on only" in ran.out
    assert f"the log cannot be read beyond slot {TIP}: readers of any version stop there" in ran.out
    assert "newest sound version: 0" in ran.out
    facts = deltastore("validate", stream, "--version", "0", "--json").json
    assert (facts["version"], facts["log_stops_at"], facts["sound"]) == (0, TIP, 0)
    assert facts["error"]["where"] == facts["problems"][0]["where"]


def test_as_many_problems_as_are_asked_for(deltastore: Run, stream: Path) -> None:
    for path in stream.glob("anchors/*/*/array-*/zarr.json"):
        flip(path, 5)
    every = deltastore("validate", stream, "--limit", "0", "--json").json
    assert every["not_listed"] == 0
    assert every["found"] == len(every["problems"]) > 1
    ran = deltastore("validate", stream, "--limit", "1")
    assert f"and {every['found'] - 1} more: --limit 0 lists all" in ran.out
    assert "take another version" not in ran.out
    assert deltastore("validate", stream, "--limit", "1", "--json").json["not_listed"] == every["found"] - 1


def test_what_a_replay_tells(deltastore: Run, stream: Path) -> None:
    ran = deltastore("validate", stream, "--deep")
    assert "replayed and right 2 of 2 versions: " in ran.out
    assert "replayed" not in deltastore("validate", stream).out


def test_a_problem_is_printed_once(deltastore: Run, stream: Path) -> None:
    pack = only(stream, "packs/*/*")
    flip(pack, pack.stat().st_size - 1)
    ran = deltastore("validate", stream)
    assert (ran.out.count(pack.name), ran.err.count(pack.name)) == (1, 1)
    assert ran.err.endswith(".pack: bad_hash, DS061\n")


def test_how_a_run_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    assert "--resume FILE" in how_to_go_on(None)
    for text in (None, "", "{}\n"):
        if text is not None:
            notes.write_text(text)
        assert how_to_go_on(notes) == f"interrupted before any version was noted in {notes}"
    notes.write_text("{}\n{}\n")
    assert f"--resume {notes} again" in how_to_go_on(notes)


def test_no_such_version(deltastore: Run, stream: Path) -> None:
    deltastore("validate", stream, "--version", "9").fails_with(10, "no version 9", "newest is 1")
    deltastore("validate", stream, "--version", "x").fails_with(2, "latest")


def test_levels_that_contradict(deltastore: Run, stream: Path) -> None:
    deltastore("validate", stream, "--deep", "--level", "content").fails_with(2, "--deep", "content")
    deltastore("validate", stream, "--level", "structure", "--resume", "x").fails_with(2, "--resume")
    deltastore("validate", stream, "--level", "shallow").fails_with(2, "shallow")
    deltastore("validate", stream, "--jobs", "0").fails_with(2, "jobs")


def test_the_table_of_checks(deltastore: Run, stream: Path) -> None:
    ran = deltastore("validate", stream, "--checks")
    rows = {line.split()[0]: line for line in ran.out.splitlines() if line.startswith("DS")}
    assert list(rows) == list(CHECKS)
    for name, check in CHECKS.items():
        assert check.meaning in rows[name]
        assert f" {check.section} " in rows[name]
    assert "passed 5" in rows["DS051"]
    assert "needs --level deep" in rows["DS046"]
    assert "conduct of readers" in rows["DS090"]
    assert (
        "passed" in deltastore("validate", stream, "--deep", "--checks").out.split("DS046")[1].split("\n")[0]
    )
    rewrite(record_path(stream, TIP), epoch=9)
    ran = deltastore("validate", stream, "--checks")
    (row,) = [line for line in ran.out.splitlines() if line.startswith("DS053")]
    assert "failed 1, passed 4" in row


def test_a_wrong_digest_is_told_without_replay(deltastore: Run, stream: Path) -> None:
    digest = fields_of(record_path(stream, TIP))["digest"]
    rewrite(record_path(stream, TIP), digest=f"{int(digest, 16) ^ 1:016x}")
    ran = deltastore("validate", stream)
    ran.fails_with(12, record_path(stream, TIP).name)
    assert "DS062 bad_digest version 1" in ran.out


class TestNotes:
    """``--resume FILE``."""

    def test_what_is_noted_is_not_read_again(self, deltastore: Run, stream: Path, tmp_path: Path) -> None:
        notes = tmp_path / "notes"
        assert deltastore("validate", stream, "--resume", notes, "--json").json["resumed"] == 0
        ran = deltastore("validate", stream, "--resume", notes)
        assert "2 versions sound by the notes" in ran.out
        flip(only(stream, "packs/*/*"), 100)
        assert deltastore("validate", stream, "--resume", notes).status == 0
        assert deltastore("validate", stream).status == 12

    def test_what_is_no_file(self, deltastore: Run, stream: Path, tmp_path: Path) -> None:
        for path in ("/dev/null", tmp_path / "no" / "notes"):
            deltastore("validate", stream, "--resume", path).fails_with(1, str(path), "give a regular file")

    def test_another_file(self, deltastore: Run, stream: Path, tmp_path: Path) -> None:
        notes = tmp_path / "notes"
        notes.write_text("my diary\n")
        deltastore("validate", stream, "--resume", notes).fails_with(1, "notes", "another file")
        deltastore("validate", stream, "--resume", tmp_path).fails_with(2, "resume")

    @pytest.mark.parametrize("name", ["SIGINT", "SIGKILL"])
    def test_a_run_that_is_stopped_goes_on(
        self, deltastore: Run, stream: Path, third: Path, tmp_path: Path, name: str
    ) -> None:
        assert deltastore("publish", stream, third).status == 0
        notes = tmp_path / "notes"
        ran = stopped(name, f"packs/{2:020d}", "validate", str(stream), "--jobs", "1", "--resume", str(notes))
        assert ran.status == (130 if name == "SIGINT" else -signal.SIGKILL)
        assert ran.out == ""
        assert ("--resume" in ran.err) == (name == "SIGINT")
        assert "Traceback" not in ran.err
        noted = [json.loads(line)["version"] for line in notes.read_text().splitlines()[1:]]
        assert noted in ([0], [0, 1])
        facts = deltastore("validate", stream, "--resume", notes, "--json").json
        assert (facts["ok"], facts["versions"], facts["resumed"]) == (True, 3, len(noted))

    def test_without_notes_it_says_what_would_help(self, stream: Path) -> None:
        ran = stopped("SIGINT", "packs/", "validate", str(stream))
        assert ran.status == 130
        assert "--resume FILE" in ran.err


def stopped(name: str, prefix: str, *arguments: str) -> Ran:
    """A command in a process that gets a signal when such an object is first asked for."""
    program = [sys.executable, "-m", "tests.cli.interrupted", name, prefix, *arguments]
    root = Path(__file__).parents[2]
    ran = subprocess.run(program, capture_output=True, text=True, check=False, timeout=60, cwd=root)
    return Ran(ran.returncode, ran.stdout, ran.stderr)
