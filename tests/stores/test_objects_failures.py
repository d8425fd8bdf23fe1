"""The store over obstore against a server that loses replies and refuses; and what needs no server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from deltastore.errors import CorruptError, StoreError
from deltastore.stores import open_store
from deltastore.stores.objects import ObjectsStore
from tests.servers.credentials import only_our_credentials

from .fake_s3 import FakeS3, Step, after_doing, error, hang_up, reply
from .operations import OPERATIONS, keys_of
from .patience import FakeTime
from .s3_fixtures import server, time

__all__ = ["server", "time"]

ROOT = Path(__file__).parents[2]


@pytest.fixture
async def store(server: FakeS3, time: FakeTime) -> AsyncIterator[ObjectsStore]:
    address = replace(server.address, scheme="s3+obstore")
    async with ObjectsStore(address, retrying=time.retrying()) as store:
        yield store


async def test_a_conflict_is_no_outcome(server: FakeS3, store: ObjectsStore) -> None:
    server.script = [error(409, "ConditionalRequestConflict"), error(409, "OperationAborted")]
    assert await store.put_if_absent("k", b"x") is True
    server.script = [error(409, "ConditionalRequestConflict")]
    assert await store.put_if_absent("k", b"y") is False
    assert server.objects == {"k": b"x"}
    assert server.asked == ["PUT"] * 5


@pytest.mark.parametrize("lost", [hang_up, reply(500), error(503, "ServiceUnavailable"), reply(504)])
async def test_a_lost_reply_leaves_doubt(server: FakeS3, store: ObjectsStore, lost: Step) -> None:
    assert await store.stat("k") is None
    server.script = [after_doing(lost)]
    with pytest.raises(StoreError, match="unknown, so read the key back") as caught:
        await store.put_if_absent("k", b"x")
    assert (caught.value.code, caught.value.where) == ("store_failed", "k")
    assert server.asked == ["HEAD", "PUT", "PUT"]


async def test_a_server_without_conditions_is_unfit(server: FakeS3, store: ObjectsStore) -> None:
    server.script = [error(501, "NotImplemented")]
    with pytest.raises(StoreError, match="use another store") as caught:
        await store.put_if_absent("k", b"x")
    assert caught.value.code == "store_unfit"


async def test_a_bad_reply_is_asked_for_again(server: FakeS3, store: ObjectsStore) -> None:
    server.objects["k"] = b"12345"
    known = {"ETag": '"x"', "Last_Modified": "Wed, 21 Oct 2026 07:28:00 GMT"}
    server.script = [
        reply(200, b"1234", Content_Length="5", Connection="close", **known),
        hang_up,
        reply(500),
        reply(200, b"12345", **known),
        reply(200, b"1234", Content_Length=str(10**13), **known),
    ]
    assert await store.get("k", limit=5) == b"12345"
    with pytest.raises(CorruptError) as caught:
        await store.get("k", limit=10**9)
    assert caught.value.code == "too_large"


@pytest.mark.parametrize(
    ("refusal", "advice"),
    [
        (error(403, "AccessDenied", "hunter2"), "without leave to list"),
        (error(404, "NoSuchBucket", "hunter2"), "there is no such bucket"),
        (error(400, "Odd", "hunter2"), "answers 400"),
    ],
)
async def test_a_refusal_says_what_to_do(
    server: FakeS3, store: ObjectsStore, refusal: Step, advice: str
) -> None:
    server.script = [refusal]
    with pytest.raises(StoreError, match=advice) as caught:
        await store.get("k", limit=1)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__suppress_context__


async def test_a_server_that_stays_down_is_given_up(server: FakeS3, store: ObjectsStore) -> None:
    for operation in OPERATIONS.values():
        server.script = [hang_up] * 99
        with pytest.raises(StoreError, match="attempts: the connection failed or broke off"):
            await operation(store, "k")
    server.script = [hang_up] * 99
    with pytest.raises(StoreError, match="cannot list the store after 18 attempts"):
        await keys_of(store)


def test_a_process_ends_as_it_means_to() -> None:
    # obstore answers from threads; one that is inside the interpreter at its end aborts the process.
    with only_our_credentials():
        command = (sys.executable, "-m", "tests.stores.failing_user")
        started = [subprocess.Popen(command, cwd=ROOT) for _ in range(3)]
        assert [process.wait() for process in started] == [1, 1, 1]


async def test_a_forked_process_is_told_to_start_afresh(
    server: FakeS3, store: ObjectsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put("k", b"x")
    monkeypatch.setattr("os.getpid", lambda: 1)
    with pytest.raises(StoreError, match="start the process afresh"):
        await store.get("k", limit=1)
    assert server.asked == ["PUT"]


@pytest.mark.parametrize("url", ["gs://bucket/a/b", "gs://bucket", "s3+obstore://bucket/a?region=eu-west-1"])
def test_opening_reaches_nothing(url: str) -> None:
    store = open_store(url)
    assert isinstance(store, ObjectsStore)
    assert store.url == url
    assert repr(store) == f"ObjectsStore('{url}')"


def test_a_container_of_azure() -> None:
    store = open_store("az://container/a?concurrency=4")
    assert isinstance(store, ObjectsStore)
    assert store.url == "az://container/a?concurrency=4"


async def test_a_wrong_environment_is_an_error_of_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(StoreError, match="check the credentials and settings"):
        await open_store("az://container").get("k", limit=1)
