"""A scripted server, time that does not pass, and a store between them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from deltastore.stores.s3 import S3Store
from tests.servers.credentials import only_our_credentials

from .fake_s3 import FakeS3
from .patience import FakeTime


@pytest.fixture
async def server() -> AsyncIterator[FakeS3]:
    with only_our_credentials():
        async with FakeS3() as fake:
            yield fake


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture
async def store(server: FakeS3, time: FakeTime) -> AsyncIterator[S3Store]:
    async with S3Store(server.address, retrying=time.retrying()) as store:
        yield store
