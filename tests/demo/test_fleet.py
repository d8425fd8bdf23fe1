"""An engine that fails is seen, shown and ended; nothing waits for it for ever."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from deltastore.demo.fleet import Engine, EngineFailedError, Fleet, Start
from deltastore.demo.report import Report

REPORT = Report(version=0, visible_at=1.5, pause_ms=0.25, nbytes=10, sha256="00", tokens=[1, 2])


def script(folder: Path, body: str) -> str:
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def started(folder: Path, url: str = "memory://nowhere") -> Engine:
    return Engine(Start("engine-7", None), url=url, until=1, folder=folder)


def test_a_real_engine_without_a_stream_ends_with_the_status_of_its_error(tmp_path: Path) -> None:
    url = (tmp_path / "nothing").as_uri()
    starts = [Start("engine-0", None), Start("engine-1", tmp_path)]
    with (
        Fleet(starts, url=url, until=3, folder=tmp_path) as fleet,
        pytest.raises(EngineFailedError, match=r"engine-0 ended with exit status 10:\n.*no stream"),
    ):
        fleet.wait_for(0)
    assert all(engine.ended for engine in fleet.engines)


def test_what_a_crashed_engine_wrote_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", script(tmp_path, "echo 'out of memory' >&2; exit 3"))
    with (
        started(tmp_path) as engine,
        pytest.raises(EngineFailedError, match=r"^engine-7 ended with exit status 3:\nout of memory$"),
    ):
        engine.wait_for(0)


def test_a_crash_after_a_report_is_seen_while_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = REPORT.to_line().strip()
    monkeypatch.setattr(sys, "executable", script(tmp_path, f"echo '{line}'; kill -9 $$"))
    with started(tmp_path) as engine:
        assert engine.wait_for(0) == REPORT
        with pytest.raises(EngineFailedError, match=r"exit status -9:\n\(it wrote nothing"):
            engine.collect(timeout=60)


def test_an_engine_that_ends_too_early_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", script(tmp_path, "exit 0"))
    with (
        started(tmp_path) as engine,
        pytest.raises(EngineFailedError, match="did not report version 0"),
    ):
        engine.wait_for(0)


def test_a_silent_engine_is_not_waited_for_and_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", script(tmp_path, "exec sleep 600"))
    with started(tmp_path) as engine:
        with pytest.raises(EngineFailedError, match="did not report version 0"):
            engine.wait_for(0, timeout=0.05)
        with pytest.raises(EngineFailedError, match="did not end"):
            engine.finish(timeout=0.05)
        assert not engine.ended
    assert engine.ended


def test_a_failure_of_the_trainer_kills_the_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", script(tmp_path, "exec sleep 600"))
    starts = [Start("engine-0", None), Start("engine-1", None)]
    fleet = Fleet(starts, url="memory://nowhere", until=1, folder=tmp_path)
    with pytest.raises(ZeroDivisionError), fleet:
        raise ZeroDivisionError
    assert all(engine.ended for engine in fleet.engines)


def test_reports_are_put_together_however_they_arrive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = REPORT.to_line().strip()
    halves = f"printf '%s' '{line[:20]}'; sleep 0.2; echo '{line[20:]}'; echo '{line}'"
    monkeypatch.setattr(sys, "executable", script(tmp_path, halves))
    with started(tmp_path) as engine:
        assert engine.wait_for(0) == REPORT
        engine.finish()
        assert engine.reports == {0: REPORT}
