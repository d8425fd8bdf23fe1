"""The credentials appear nowhere: not in names, not in errors, not in any log."""

from __future__ import annotations

import logging
import traceback
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from deltastore.errors import DeltastoreError, StoreError
from deltastore.stores.s3 import S3Store

from .fake_s3 import FakeS3, Request, hang_up, message
from .operations import OPERATIONS, keys_of
from .patience import FakeTime
from .s3_fixtures import server, time

__all__ = ["server", "time"]

KEY, SECRET, TOKEN = "AKIAHUNTER", "hunter2/secret", "hunter3token"


@pytest.fixture
async def store(server: FakeS3, time: FakeTime, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[S3Store]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    async with S3Store(server.address, retrying=time.retrying(deadline=1)) as store:
        yield store


async def echo(fake: FakeS3, request: Request) -> bytes:
    """Refuse, and repeat everything that was sent."""
    said = "".join(f"{name}: {value}; " for name, value in request.headers.items())
    body = f"<Error><Code>Echo {KEY} {TOKEN}</Code><Message>{said}{KEY}</Message></Error>"
    return message(400, body.encode())


async def test_no_error_and_no_log_repeats_them(
    server: FakeS3, store: S3Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    said = [str(store), repr(store), store.url]
    for step in (echo, hang_up):
        for operation in OPERATIONS.values():
            server.script = [step] * 20
            with pytest.raises(DeltastoreError) as caught:
                await operation(store, "k")
            said += traceback.format_exception(caught.value)
        server.script = [step] * 20
        with pytest.raises(DeltastoreError) as caught:
            await keys_of(store)
        said += traceback.format_exception(caught.value)
    said += [record.getMessage() for record in caplog.records]
    assert {"botocore.auth", "botocore.endpoint"} <= {record.name for record in caplog.records}
    assert server.requests[0].headers["x-amz-security-token"] == TOKEN
    text = "\n".join(said)
    for secret in (SECRET, TOKEN, KEY):
        assert secret not in text


async def test_without_credentials_it_says_so(server: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    async with S3Store(server.address) as store:
        with pytest.raises(StoreError, match="no credentials for S3; set AWS_ACCESS_KEY_ID"):
            await store.get("k", limit=1)
    assert server.requests == []


async def test_an_unknown_profile_is_named_as_the_cause(server: FakeS3) -> None:
    async with S3Store(replace(server.address, profile="absent")) as store:
        with pytest.raises(StoreError, match=r"correct \?profile="):
            await store.get("k", limit=1)
