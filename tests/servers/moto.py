"""moto: a mock of S3 in memory. It forgets everything when it is killed."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from .ports import LOOPBACK, free_ports
from .process import ServerProcess
from .server import Server


@contextlib.contextmanager
def running_moto(folder: Path) -> Iterator[Server]:
    """A moto server, ended when the block ends; ``folder`` takes its log."""
    folder.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "moto.server", "-H", LOOPBACK, "-p", str(port)]
    environment = {"HOME": str(folder), "PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"}
    process = ServerProcess(command, environment, folder / "moto.log")
    server = Server(f"http://{LOOPBACK}:{port}", process)
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.kill()
