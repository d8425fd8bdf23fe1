"""One server of each kind for a whole test run, started by the first test that asks for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .credentials import only_our_credentials
from .moto import running_moto
from .s3rver import running_s3rver
from .server import Server
from .weed import running_weed


@pytest.fixture(scope="session")
def s3_credentials() -> Iterator[None]:
    """The servers' credentials in the environment, for what reads them there."""
    with only_our_credentials():
        yield


@pytest.fixture(scope="session")
def weed(s3_credentials: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """SeaweedFS, which keeps every promise."""
    with running_weed(tmp_path_factory.mktemp("weed")) as server:
        yield server


@pytest.fixture(scope="session")
def moto(s3_credentials: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A mock that keeps them too, but for the SHA-256 of what it is sent."""
    with running_moto(tmp_path_factory.mktemp("moto")) as server:
        yield server


@pytest.fixture(scope="session")
def s3rver(s3_credentials: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A store that must be refused: it ignores conditions."""
    with running_s3rver(tmp_path_factory.mktemp("s3rver")) as server:
        yield server
