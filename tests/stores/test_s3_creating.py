"""Creation against a server that loses replies, refuses, delays and stalls."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from dataclasses import replace

import pytest

from deltastore.errors import StoreError
from deltastore.stores.s3 import S3Store

from .fake_s3 import FakeS3, Request, Step, after_doing, error, hang_up, honest, reply, stall
from .patience import FakeTime
from .s3_fixtures import server, store, time

__all__ = ["server", "store", "time"]


CONFLICT = error(409, "ConditionalRequestConflict")
BUSY = error(503, "SlowDown", Retry_After="7")


async def test_a_conflict_is_no_outcome(server: FakeS3, store: S3Store) -> None:
    server.script = [CONFLICT, CONFLICT]
    assert await store.put_if_absent("k", b"x") is True
    assert server.objects == {"k": b"x"}
    assert server.asked == ["PUT"] * 3
    server.script = [CONFLICT]
    assert await store.put_if_absent("k", b"y") is False
    assert server.objects == {"k": b"x"}


@pytest.mark.parametrize(
    "lost",
    [
        hang_up,
        reply(500),
        error(500, "InternalError"),
        reply(502, b"<html>"),
        reply(503),
        reply(504),
        reply(200, b"", Content_Length="999999999", Connection="close"),
        reply(200, b"", garbage="\x00"),
    ],
)
async def test_a_lost_reply_leaves_doubt(server: FakeS3, store: S3Store, lost: Step) -> None:
    assert await store.stat("k") is None  # so that the connection is a used one, which aiohttp trusts less
    server.script = [after_doing(lost)]
    with pytest.raises(StoreError, match="unknown, so read the key back") as caught:
        await store.put_if_absent("k", b"x")
    assert (caught.value.code, caught.value.where) == ("store_failed", "k")
    assert server.objects == {"k": b"x"}
    assert server.asked == ["HEAD", "PUT", "PUT"]


async def test_an_empty_body_is_not_sent_again_behind_our_back(server: FakeS3, store: S3Store) -> None:
    assert await store.stat("k") is None
    server.script = [after_doing(hang_up)]
    with pytest.raises(StoreError, match="unknown"):
        await store.put_if_absent("k", b"")


async def test_a_request_that_was_never_done_leaves_doubt_but_succeeds(
    server: FakeS3, store: S3Store
) -> None:
    server.script = [hang_up, reply(500), BUSY]
    assert await store.put_if_absent("k", b"x") is True
    assert server.objects == {"k": b"x"}


async def test_a_stalled_request_that_lands_late_leaves_doubt(server: FakeS3, time: FakeTime) -> None:
    landed: list[Request] = []

    async def held(fake: FakeS3, request: Request) -> bytes:
        landed.append(request)
        return await stall(fake, request)

    async def too_late(fake: FakeS3, request: Request) -> bytes:
        await honest(fake, landed[0])
        return await honest(fake, request)

    server.script = [held, too_late]
    async with S3Store(server.address, retrying=time.retrying(read=0.1)) as store:
        with pytest.raises(StoreError, match="unknown, so read the key back"):
            await store.put_if_absent("k", b"x")
    assert server.objects == {"k": b"x"}


async def test_a_definite_no_leaves_no_doubt(server: FakeS3, store: S3Store) -> None:
    server.objects["k"] = b"theirs"
    server.script = [CONFLICT, BUSY, error(400, "RequestTimeout"), error(400, "BadDigest"), reply(429)]
    assert await store.put_if_absent("k", b"ours") is False
    assert server.objects == {"k": b"theirs"}


async def test_a_server_that_was_not_reached_leaves_no_doubt(server: FakeS3) -> None:
    time = FakeTime()
    late = FakeS3(objects={"k": b"theirs"})
    async with FakeS3() as free:
        late.port = free.port

    async def starting(seconds: float) -> None:
        if len(time.pauses) == 2:
            await late.__aenter__()
        await time.sleep(seconds)

    retrying = replace(time.retrying(), sleep=starting)
    async with S3Store(late.address, retrying=retrying) as store:
        assert await store.put_if_absent("k", b"ours") is False
    await late.__aexit__(None, None, None)
    assert len(time.pauses) == 3


async def test_the_server_says_how_long_to_wait(server: FakeS3, store: S3Store, time: FakeTime) -> None:
    server.script = [
        BUSY,
        reply(429, Retry_After="11"),
        reply(503, Retry_After="Wed, 21 Oct 2026 07:28:00 GMT"),
    ]
    await store.put("k", b"x")
    assert time.pauses == [7, 11, 0.2]


async def test_a_server_that_stays_busy_is_given_up(server: FakeS3, store: S3Store) -> None:
    server.script = [error(503, "SlowDown")] * 99
    with pytest.raises(StoreError, match="attempts: the server answers 503 SlowDown; check") as caught:
        await store.put_if_absent("k", b"x")
    assert caught.value.code == "store_failed"
    server.script = [hang_up] * 99
    with pytest.raises(StoreError, match="the outcome is unknown: read the key back"):
        await store.put_if_absent("k", b"x")


@pytest.mark.parametrize("unknown", [reply(501), error(501, "NotImplemented"), error(400, "InvalidArgument")])
async def test_a_server_without_conditions_is_unfit(server: FakeS3, store: S3Store, unknown: Step) -> None:
    server.script = [unknown]
    with pytest.raises(StoreError, match="use another store") as caught:
        await store.put_if_absent("k", b"x")
    assert caught.value.code == "store_unfit"


async def test_every_upload_carries_its_checksum_and_asks_for_no_leave(
    server: FakeS3, store: S3Store
) -> None:
    await store.put("k", b"x")
    await store.put_if_absent("l", b"x")
    for request in server.requests:
        checksum = base64.b64encode(hashlib.sha256(b"x").digest()).decode()
        assert request.headers["x-amz-checksum-sha256"] == checksum
        assert "x-amz-checksum-sha256" in request.headers["authorization"]
        assert "expect" not in request.headers
        assert "transfer-encoding" not in request.headers


async def test_a_cancelled_upload_lets_go_of_the_data(server: FakeS3, store: S3Store) -> None:
    server.taking.clear()
    data = bytearray(b"x" * 30_000_000)
    upload = asyncio.ensure_future(store.put("k", data))
    await server.waiting.wait()
    upload.cancel()
    with pytest.raises(asyncio.CancelledError):
        await upload
    data[:] = b"y" * len(data)
    server.taking.set()
    await server.broke.wait()
    assert 0 < len(server.broken) < len(data)
    assert server.broken.count(b"x") == len(server.broken)
    assert server.objects == {}


async def test_the_loop_goes_on_while_a_large_object_is_sent(server: FakeS3, store: S3Store) -> None:
    rounds = 0

    async def count() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    await store.put("k", b"x" * 32_000_000)
    counting.cancel()
    assert rounds > 100
    assert len(server.objects["k"]) == 32_000_000


async def test_a_bucket_in_another_region_is_found(server: FakeS3, store: S3Store) -> None:
    server.script = [error(301, "PermanentRedirect", x_amz_bucket_region="eu-west-1")]
    assert await store.put_if_absent("k", b"x" * 100_000) is True
    assert server.objects == {"k": b"x" * 100_000}
    assert "/eu-west-1/s3/" in server.requests[-1].headers["authorization"]
    assert server.asked == ["PUT", "PUT"]
