"""s3rver: a store that takes a condition and ignores it, so that every racing creation succeeds.

It is here to be refused. ``make test`` gets it from npm.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from .ports import LOOPBACK, free_ports
from .process import ServerProcess
from .server import Server

_PROGRAM = Path(__file__).resolve().parents[2] / "build/s3rver/node_modules/s3rver/bin/s3rver.js"


@contextlib.contextmanager
def running_s3rver(folder: Path) -> Iterator[Server]:
    """An s3rver with its data in ``folder``, ended when the block ends."""
    node = shutil.which("node")
    if node is None or not _PROGRAM.exists():
        raise RuntimeError(f"{_PROGRAM} or node is missing: install Node.js, then run make s3rver")
    folder.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    command = [node, str(_PROGRAM), "-d", str(folder / "data"), "-a", LOOPBACK, "-p", str(port), "--silent"]
    process = ServerProcess(command, {"HOME": str(folder), "PATH": os.defpath}, folder / "s3rver.log")
    server = Server(f"http://{LOOPBACK}:{port}", process)
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.kill()
