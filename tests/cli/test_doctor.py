"""``deltastore doctor``: one line a capability, and an exit status that a script can rely on."""

from __future__ import annotations

from pathlib import Path

import pytest

from deltastore.stores import MemoryStore, Store
from tests.cli.conftest import Run
from tests.cli.running import objects
from tests.servers.server import Server
from tests.stores.forged import LetsRacersWin, ListsBackwards


def replace_store(patch: pytest.MonkeyPatch, store: Store) -> None:
    """Whatever URL is given, ``store`` is opened."""
    patch.setattr("deltastore.stores.open.open_store", lambda url, **_: store)


def test_a_sound_store(deltastore: Run, memory_url: str) -> None:
    ran = deltastore("doctor", memory_url)
    assert (ran.status, ran.err) == (0, "")
    *lines, poll, end = ran.out.splitlines()
    assert [line.split()[0] for line in lines] == ["ok"] * 11
    assert lines[4] == "ok       create race       1 of 32 racing creations won"
    assert poll.startswith("asking whether an object has changed takes ")
    assert end == "ok: this store can hold a stream"


def test_json(deltastore: Run, memory_url: str) -> None:
    ran = deltastore("doctor", memory_url, "--json", "--quick", "--large", "1")
    assert (ran.status, ran.err) == (0, "")
    facts = ran.json
    assert facts["ok"] is True
    assert facts["url"] == memory_url
    assert facts["poll_seconds"] >= 0
    assert [found["name"] for found in facts["capabilities"]] == [
        "write and read",
        "create if absent",
        "absent key",
        "ranged read",
        "large object",
    ]
    assert set(facts["capabilities"][0]) == {"name", "verdict", "detail", "needed_for"}
    assert "error" not in facts


def test_a_stream_is_left_as_it_was(deltastore: Run, stream: Path) -> None:
    before = objects(stream)
    assert deltastore("doctor", stream).status == 0
    assert objects(stream) == before
    assert deltastore("validate", stream).status == 0


def test_a_store_that_lets_two_writers_win(
    deltastore: Run, memory_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_store(monkeypatch, LetsRacersWin(MemoryStore(memory_url)))
    ran = deltastore("doctor", memory_url)
    ran.fails_with(1, memory_url, "create race lost: 32 of 32", "use another store", "--single-writer")
    (line,) = [line for line in ran.out.splitlines() if line.startswith("FAILS")]
    assert line.endswith("(needed for commits)")
    assert "can hold a stream" not in ran.out

    ran = deltastore("doctor", memory_url, "--json")
    assert ran.status == 1
    assert ran.json["ok"] is False
    assert ran.json["error"]["code"] == "store_unfit"
    assert "create race lost" in ran.json["error"]["message"]


def test_what_no_writer_needs_is_said_and_no_error(
    deltastore: Run, memory_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_store(monkeypatch, ListsBackwards(MemoryStore(memory_url)))
    ran = deltastore("doctor", memory_url)
    assert (ran.status, ran.err) == (0, "")
    assert "FAILS    list order        keys are listed out of order: b/00" in ran.out
    assert ran.out.endswith("ok: this store can hold a stream, though not all of the above works\n")


def test_seaweed(deltastore: Run, weed: Server) -> None:
    # Quick: SeaweedFS has 32 racers wait for each other, many seconds in all.
    ran = deltastore("doctor", weed.url(weed.bucket("doctor")), "--quick")
    assert (ran.status, ran.err) == (0, "")
    assert "FAILS" not in ran.out


def test_moto(deltastore: Run, moto: Server) -> None:
    ran = deltastore("doctor", moto.url(moto.bucket("doctor")))
    assert (ran.status, ran.err) == (0, "")
    assert "ok       create race" in ran.out
    assert moto.secret_key not in ran.out


def test_a_server_that_ignores_conditions_is_refused(deltastore: Run, s3rver: Server) -> None:
    ran = deltastore("doctor", s3rver.url(s3rver.bucket("doctor")), "--patience", "1")
    ran.fails_with(1, "a second creation of one object succeed", "use another store")
    assert "create race lost: 32 of 32" in ran.out


@pytest.mark.usefixtures("s3_credentials")
@pytest.mark.parametrize("scheme", ["s3", "s3+obstore"])
def test_a_server_that_is_not_there(deltastore: Run, scheme: str) -> None:
    # Port 1 takes no connection anywhere.
    url = f"{scheme}://bucket?endpoint=http://127.0.0.1:1"
    ran = deltastore("doctor", url, "--patience", "3")
    ran.fails_with(1, "cannot write probes/", "connection refused; check the server", "put that right")
    assert [line.split()[0] for line in ran.out.splitlines()] == ["FAILS"]


def test_no_folder_is_left(deltastore: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert deltastore("doctor", tmp_path).status == 0
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_a_url_that_names_no_store(deltastore: Run) -> None:
    deltastore("doctor", "nowhere").fails_with(1, "names no store")
