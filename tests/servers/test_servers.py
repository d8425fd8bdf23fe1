"""The servers take writes, forget nothing that they acknowledged, and leave with whoever started them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deltastore.stores import open_store
from tests.servers.credentials import only_our_credentials
from tests.servers.ports import free_ports
from tests.servers.process import ServerProcess
from tests.servers.server import Server
from tests.servers.weed import running_weed

ROOT = Path(__file__).resolve().parents[2]

STARTER = """
import os, sys, time
from pathlib import Path
from tests.servers.process import ServerProcess
print(ServerProcess(["/bin/sleep", "600"], os.environ, Path(sys.argv[1])).pid, flush=True)
time.sleep(600)
"""


def wait_until_gone(pid: int) -> None:
    """Return when no process has this number, or only one that nobody has asked about since it ended."""
    for _ in range(1000):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state == "Z":
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} is still there")


@pytest.mark.parametrize("name", ["weed", "moto", "s3rver"])
def test_a_bucket_may_be_made_twice(name: str, request: pytest.FixtureRequest) -> None:
    server: Server = request.getfixturevalue(name)
    assert server.bucket("twice") == server.bucket("twice") == "twice"
    assert server.url("twice", "a/b") == f"s3://twice/a/b?endpoint={server.endpoint}&path_style=true"
    assert server.endpoint.startswith("http://127.0.0.1:")
    assert "secret" not in repr(server)


def test_clients_see_the_credentials_of_the_servers_and_no_others(
    weed: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert os.environ["AWS_ACCESS_KEY_ID"] == weed.access_key
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == weed.secret_key
    monkeypatch.setenv("AWS_PROFILE", "a developer's own")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a developer's own")
    with only_our_credentials():
        assert os.environ["AWS_ACCESS_KEY_ID"] == weed.access_key
        assert "AWS_PROFILE" not in os.environ
        assert os.environ["AWS_CONFIG_FILE"] == os.devnull
    assert os.environ["AWS_ACCESS_KEY_ID"] == os.environ["AWS_PROFILE"] == "a developer's own"


async def test_seaweed_keeps_what_it_acknowledged_when_it_is_killed(
    s3_credentials: None, tmp_path: Path
) -> None:
    with running_weed(tmp_path / "data") as server:
        url = server.url(server.bucket("kept"))
        async with open_store(url) as store:
            assert await store.put_if_absent("k", b"kept" * 1000)
        first = server.process.pid
        server.kill()
        server.kill()
        server.restart()
        async with open_store(url) as store:
            assert await store.get("k", limit=4000) == b"kept" * 1000
            assert not await store.put_if_absent("k", b"again")
        assert server.process.pid != first
        pid = server.process.pid
    wait_until_gone(pid)


def test_a_server_dies_with_whoever_started_it(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", STARTER, str(tmp_path / "log")]
    with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        assert Path(f"/proc/{pid}").exists()
        starter.kill()
    wait_until_gone(pid)


def test_a_program_that_ends_by_itself_is_reported_with_its_words(tmp_path: Path) -> None:
    process = ServerProcess(["/bin/sh", "-c", "echo no disk; exit 3"], {}, tmp_path / "log")
    server = Server(f"http://127.0.0.1:{free_ports(1)[0]}", process)
    with pytest.raises(RuntimeError, match=r"ended with 3: no disk"):
        server.wait_until_ready()


def test_ports_are_free_and_differ() -> None:
    ports = free_ports(20, beside=10_000)
    assert len(set(ports)) == 20
    assert all(1024 < port < 32_768 - 10_000 for port in ports)
