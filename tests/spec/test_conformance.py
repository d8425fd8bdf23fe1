"""The conformance runner: who is right passes, and whoever is wrong fails with words that say how."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from deltastore import __version__
from spec.conformance import implementation
from spec.conformance.case import Case
from spec.conformance.command import main
from spec.conformance.report import Results
from spec.conformance.run import run

ROOT = Path(__file__).parents[2]
DECODER = [sys.executable, "-m", "spec.decoder", "--serve"]
PRODUCT = [sys.executable, "-m", "spec.product"]
SMALL = ("names.json", "digest.json")


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ``-m spec.decoder`` finds it."""
    monkeypatch.chdir(ROOT)


def told(how: str, *files: str, timeout: float = 20.0, most: int = 10**6) -> Results:
    """What came of asking a wrong implementation at most so many cases of some files."""
    left = iter(range(most))

    def wanted(case: Case) -> bool:
        return case.file in (files or SMALL) and next(left, None) is not None

    return run([sys.executable, "-m", "tests.spec.wrong", how], timeout=timeout, restarts=1, wanted=wanted)


def test_the_decoder_passes() -> None:
    """Stores are asked about in tests/spec/test_vectors.py, without a process between."""
    whole = ("broken", "edited", "streams")
    results = run(DECODER, timeout=60, wanted=lambda case: not case.file.startswith(whole))
    assert results.failures == []
    assert list(results.unsupported) == ["encode"]
    assert len(results.files) == 12
    assert results.ok
    assert results.classes() == {
        "reader": "not asked",
        "reader of a part": "not asked",
        "writer": "unsupported",
        "one of several writers": "unsupported",
        "validator": "not asked",
    }


def test_the_product_passes() -> None:
    kept = ("v1-by-hand", "a pack", "a carried file", "sums")
    results = run(
        PRODUCT,
        timeout=60,
        wanted=lambda case: not case.file.startswith(("broken", "streams")) or case.name.startswith(kept),
    )
    assert results.failures == []
    assert not results.unsupported
    assert len(results.files) == 16
    assert results.ok
    assert set(results.classes().values()) == {"passed"}


def test_who_is_off_by_one_fails() -> None:
    results = told("off-by-one")
    assert not results.ok
    assert set(results.failed) == set(SMALL)
    first = results.failures[0]
    assert first.name == "model.layers.3.mlp.experts.17.up_proj.weight"
    assert first.problem == "index: expected [3, 17], got [4, 18]"
    assert results.failed["digest.json"] == 76
    assert results.passed["names.json"] > 5  # names without an index


def test_who_takes_everything_for_good_fails() -> None:
    results = told("believing", "record.json", "patch.json")
    assert {one.problem for one in results.failures} >= {
        "expected the error bad_json (DS010), got {'ok': {'kind': 'delta', 'result': '', 'count': 1}}"
    }
    assert any(one.problem.startswith("result: expected ") for one in results.failures)
    assert any("expected the error bad_patch (DS031), got {'ok': " in one.problem for one in results.failures)


def test_who_refuses_everything_fails() -> None:
    results = told("refusing", "record.json")
    assert "expected an answer, got {'error': {'code': 'bad_url'}}" in {
        one.problem for one in results.failures
    }
    wrong = "expected the error bad_json (DS013), got code 'bad_url'"
    assert wrong in {one.problem for one in results.failures}
    assert not results.passed


def test_a_check_that_is_named_is_the_right_one() -> None:
    results = told("checks", "inventory.json")
    assert results.passed["inventory.json"] == 5
    assert {one.problem for one in results.failures} >= {
        "expected the error bad_json (DS013), got check 'DS002'"
    }


def test_who_dies_is_started_again() -> None:
    results = told("dying", "names.json", most=7)
    assert [one.problem for one in results.failures] == [
        "ended with status 1: ZeroDivisionError: this cannot be divided"
    ]
    assert results.passed["names.json"] == 6


def test_who_dies_all_the_time_is_given_up() -> None:
    results = told("leaving", "names.json", most=4)
    problems = [one.problem for one in results.failures]
    assert problems[:2] == ["ended with status 7"] * 2
    assert problems[2:] == ["not asked any more: it had to be started again too often"] * 2


@pytest.mark.parametrize("how", ["hanging", "deaf"])
def test_who_never_answers_is_not_waited_for(how: str) -> None:
    results = told(how, "names.json", timeout=0.2, most=4)
    problems = [one.problem for one in results.failures]
    assert problems[:2] == ["no reply within 0.2 seconds"] * 2
    assert problems[2:] == ["not asked any more: it had to be started again too often"] * 2


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ("nonsense", "a reply that is not JSON: b'hello\\n'"),
        ("not-utf-8", "a reply that is not JSON: b'\\xff\\xfe\\n'"),
        ("a-list", "no reply to request 1: b'[]\\n'"),
        ("another-request", 'no reply to request 1: b\'{"id": 0, "ok": {}}\\n\''),
        ("breaking-off", 'ended in the middle of a reply: b\'{"id": 1, "ok"\''),
        ("shy", "expected an answer, got {}"),
    ],
)
def test_who_talks_nonsense_fails(how: str, problem: str) -> None:
    assert [one.problem for one in told(how, "names.json", most=1).failures] == [problem]


def test_what_is_too_deep_to_be_read_fails() -> None:
    assert "a reply that is not JSON" in told("deep", "names.json", most=1).failures[0].problem


def test_half_a_reply_is_none() -> None:
    results = told("half", "names.json", timeout=0.5, most=1)
    assert results.failures[0].problem == "no reply within 0.5 seconds"


def test_a_reply_without_an_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(implementation, "REPLY_BYTES", 1 << 20)
    results = told("endless", "names.json", most=1)
    assert results.failures[0].problem == "a reply of more than 1048576 bytes"


@pytest.mark.parametrize("command", [DECODER, PRODUCT])
def test_what_is_unknown_is_answered_so(command: list[str]) -> None:
    asked: list[dict[str, object]] = [
        {"op": "dance"},
        {"op": "word", "kind": "layout", "object": "7b7d"},
        {"op": "digest", "tensor": "w", "dtype": "F4", "first": 0, "bits": "00"},
        {"op": "patch", "patch": "", "encoding": 0, "dtype": "F6", "elements": 1, "base": "00"},
        {"op": "names", "name": "a.0"},
    ]
    lines = "".join(json.dumps({"id": number, **one}) + "\n" for number, one in enumerate(asked))
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    replies = [json.loads(line) for line in done.stdout.splitlines()]
    assert replies[:4] == [{"id": number, "unsupported": True} for number in range(4)]
    assert replies[4] == {"id": 4, "ok": {"pattern": "a.*", "index": [0]}}


def test_who_supports_nothing_does_not_pass() -> None:
    results = told("unwilling", "names.json")
    assert (results.unsupported["names.json"], results.failures, results.ok) == (19, [], False)


def test_the_command_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "names.json", *DECODER]) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert shown == [
        ["passed", "failed", "unsupported"],
        ["names.json", "19", "0", "0"],
        ["all", "19", "0", "0"],
        [],
        ["vectors", "of", "release", __version__],
        ["reader:", "not", "asked"],
        ["reader", "of", "a", "part:", "not", "asked"],
        ["writer:", "not", "asked"],
        ["one", "of", "several", "writers:", "not", "asked"],
        ["validator:", "not", "asked"],
    ]


def test_the_command_shows_the_first_failures(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = [sys.executable, "-m", "tests.spec.wrong", "off-by-one"]
    assert main(["--failures", "1", "--only", "digest.json", *wrong]) == 1
    shown = capsys.readouterr().out
    assert "\ndigest.json: w\n    digest: expected " in shown
    assert shown.endswith("\nand 75 more; --failures N or --json shows them\n")


def test_the_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = [sys.executable, "-m", "tests.spec.wrong", "off-by-one"]
    assert main(["--json", "--only", "digest.json", *wrong]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is False
    assert found["vectors"] == __version__
    assert found["classes"]["reader"] == "failed"
    assert found["files"] == {"digest.json": {"passed": 0, "failed": 76, "unsupported": 0}}
    assert len(found["failures"]) == 76
    assert set(found["failures"][0]) == {"file", "name", "problem"}


def test_a_command_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "names.json", "no-such-command"]) == 2
    assert "no-such-command cannot be started: " in capsys.readouterr().err


def test_nothing_of_the_package_is_needed() -> None:
    blocked = "import sys; sys.modules['deltastore'] = None; from spec.conformance.command import main; "
    blocked += "sys.exit(main(sys.argv[1:]))"
    serving = "import sys; sys.modules['deltastore'] = None; from spec.decoder.command import main; "
    serving += "sys.exit(main(['--serve']))"
    asked = [sys.executable, "-c", blocked, "--only", "canonical.json", sys.executable, "-c", serving]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
