"""The store in a bucket, on servers: the suite."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import pytest

from deltastore.stores import Store, open_store
from tests.servers.server import Server

from .s3_conformance import BucketConformance

BUCKET = "conformance"


async def opened(server: Server) -> AsyncIterator[Store]:
    """A store under a prefix that nobody has used."""
    async with open_store(server.url(server.bucket(BUCKET), f"t{secrets.token_hex(4)}")) as store:
        yield store


class TestOnSeaweed(BucketConformance):
    """The suite, on SeaweedFS."""

    @pytest.fixture
    async def store(self, weed: Server) -> AsyncIterator[Store]:
        async for store in opened(weed):
            yield store


class TestOnMoto(BucketConformance):
    """The suite, on moto."""

    @pytest.fixture
    async def store(self, moto: Server) -> AsyncIterator[Store]:
        async for store in opened(moto):
            yield store
