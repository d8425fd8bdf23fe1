"""The store over obstore, on a server: the suite."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator

import pytest

from deltastore.stores import Store, open_store
from tests.servers.server import Server

from .s3_conformance import BucketConformance


class TestOnSeaweed(BucketConformance):
    """The suite, on SeaweedFS."""

    @pytest.fixture
    async def store(self, weed: Server) -> AsyncIterator[Store]:
        url = weed.url(weed.bucket("conformance"), f"o{secrets.token_hex(4)}")
        async with open_store(url.replace("s3://", "s3+obstore://")) as store:
            yield store
