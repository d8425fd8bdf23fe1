"""The demo from end to end: a trainer and two engines in processes of their own, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import deltastore
from deltastore.demo import model, run
from deltastore.demo.fleet import EngineFailedError
from deltastore.format.records import AnchorRecord, DeltaRecord, record_key

STEPS = 3

PROGRAM = """
import sys
from pathlib import Path
from deltastore.demo.run import run

raise SystemExit(run(steps=int(sys.argv[1]), store=Path(sys.argv[2]), keep=False, as_json=True))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "kept"


@pytest.fixture(scope="module")
def shown(home: Path) -> dict[str, Any]:
    """What a run printed as JSON."""
    arguments = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(STEPS), str(home)]
    result = subprocess.run(arguments, capture_output=True, text=True, timeout=280)
    assert result.returncode == 0, result.stderr
    assert "loss on held-out text" in result.stderr
    assert result.stdout.count("\n") == 1
    facts: dict[str, Any] = json.loads(result.stdout)
    return facts


def test_the_readers_hold_the_bits_of_the_trainer(shown: dict[str, Any]) -> None:
    assert shown["readers"] == {"engine-0": "checkpoint", "engine-1": "anchor"}
    assert shown["bit_identical"] is True
    assert shown["differences"] == []


def test_the_text_is_learned(shown: dict[str, Any]) -> None:
    loss = shown["loss"]
    assert 5.0 < loss["untrained"] < 6.5
    assert loss["warmed_up"] < loss["untrained"] - 2
    assert loss["final"] < loss["untrained"] - 2
    assert 3_000_000 < shown["parameters"] < 6_000_000


def test_every_version_is_near_the_least_that_it_could_take(shown: dict[str, Any]) -> None:
    assert [version["version"] for version in shown["versions"]] == [1, 2, 3]
    for version in shown["versions"]:
        assert version["judged"] is True
        assert 0.003 <= version["changed"] / version["elements"] <= 0.03
        assert version["bytes"] <= 1.25 * version["bound_bytes"] + 2048
        assert version["bytes_per_changed"] == version["bytes"] / version["changed"]
    assert shown["worst_ratio"] == max(version["ratio"] for version in shown["versions"])
    assert shown["passed"] is True


def test_both_readers_fetched_every_version_and_generated_the_same(shown: dict[str, Any]) -> None:
    for version in shown["versions"]:
        first, second = version["readers"]
        assert len(first["tokens"]) == 12
        assert first["tokens"] == second["tokens"]
        for reader in (first, second):
            assert 0 < reader["pause_ms"] < reader["visible_ms"]
            assert 0 < reader["bytes"] < version["bytes"]


def test_the_bytes_are_those_in_the_store(shown: dict[str, Any], home: Path) -> None:
    assert shown["url"] == home.as_uri()
    with deltastore.open(shown["url"]) as stream:
        records = stream.records()
    assert [r.version for r in records if isinstance(r, AnchorRecord)] == [0]
    deltas = [r for r in records if isinstance(r, DeltaRecord)]
    assert [delta.metadata for delta in deltas] == [{"step": 1}, {"step": 2}, {"step": 3}]
    for delta, version in zip(deltas, shown["versions"], strict=True):
        packs = (home / "packs" / f"{delta.version:020d}").iterdir()
        objects = [*packs, home / record_key(delta.slot)]
        assert sum(path.stat().st_size for path in objects) == version["bytes"]


def test_steps_below_one_are_refused() -> None:
    with pytest.raises(deltastore.InputError, match="1 step or more, not 0") as error:
        run.run(steps=0, store=None, keep=False, as_json=False)
    assert error.value.code == "bad_argument"


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_missing_libraries_are_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "find_spec", lambda name: None if name == missing else object())
    with pytest.raises(deltastore.InputError, match=r"pip install 'deltastore\[demo\]'") as error:
        run.run(steps=1, store=None, keep=False, as_json=False)
    assert error.value.code == "bad_argument"


def test_a_folder_that_holds_something_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "require_libraries", lambda: None)
    (tmp_path / "mine").write_bytes(b"precious")
    with pytest.raises(deltastore.InputError, match="is not empty"):
        run.run(steps=1, store=tmp_path, keep=False, as_json=False)
    with pytest.raises(deltastore.InputError, match="cannot hold the stream"):
        run.run(steps=1, store=tmp_path / "mine" / "below", keep=False, as_json=False)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert (tmp_path / "mine").read_bytes() == b"precious"


def test_a_failed_engine_is_told_and_gives_status_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> object:
        raise EngineFailedError("engine-0 ended with exit status 10:\nno stream")

    monkeypatch.setattr(run, "require_libraries", lambda: None)
    monkeypatch.setattr(run, "measure", fail)
    assert run.run(steps=1, store=None, keep=False, as_json=True) == 1
    out, err = capsys.readouterr()
    assert "engine-0 ended with exit status 10:\nno stream" in err
    assert json.loads(out)["error"]["message"].startswith("engine-0 ended")


def test_the_demo_costs_nothing_until_it_runs() -> None:
    program = "import sys, deltastore.demo.run\nprint(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in result.stdout.split()}
    assert loaded.isdisjoint({"torch", "transformers", "safetensors"})
