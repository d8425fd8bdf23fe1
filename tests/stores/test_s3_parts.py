"""Uploads in parts: on a real server bit by bit, and on a scripted one in failure."""

from __future__ import annotations

import asyncio
import random
import secrets
import tracemalloc
from collections.abc import AsyncIterator

import pytest

from deltastore.errors import StoreError
from deltastore.stores import Store, open_store
from deltastore.stores.s3 import MULTIPART_BYTES, S3Store, multipart
from deltastore.stores.s3 import store as s3_store
from tests.servers.server import Server

from .fake_s3 import FakeS3, Request, Step, after_doing, error, hang_up, reply, stall
from .patience import FakeTime
from .s3_fixtures import server, store, time

__all__ = ["server", "store", "time"]

NAMED = reply(200, b"<R><UploadId>it</UploadId></R>")
DONE = reply(200, b"<R><ETag>x</ETag></R>")
PART = reply(200, ETag='"part"')
GONE = reply(204)
DATA = bytes(range(40))


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_store, "MULTIPART_BYTES", 20)
    monkeypatch.setattr(multipart, "PART_BYTES", 16)


@pytest.fixture
async def real(weed: Server) -> AsyncIterator[Store]:
    async with open_store(weed.url(weed.bucket("parts"), secrets.token_hex(4))) as store:
        yield store


async def test_a_large_object_comes_back_bit_by_bit(real: Store) -> None:
    data = random.Random(5).randbytes(70 * 1024 * 1024)
    assert len(data) > MULTIPART_BYTES
    await real.put("put", memoryview(data))
    assert await real.get("put", limit=len(data)) == data
    assert await real.put_if_absent("created", bytearray(data)) is True
    assert await real.put_if_absent("created", b"x") is False
    assert await real.get("created", limit=len(data)) == data


async def test_nothing_is_held_twice(real: Store) -> None:
    data = random.Random(6).randbytes(32 * 1024 * 1024)
    await real.put("first", b"x")  # what the client itself needs
    tracemalloc.start()
    await real.put("k", data)
    written = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    found = await real.get("k", limit=len(data))
    read = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == data
    assert written < len(data) // 4
    assert read < len(data) * 3 // 2


@pytest.mark.usefixtures("small_parts")
class TestScripted:
    """Against a scripted server."""

    async def test_the_parts_are_the_object(self, server: FakeS3, store: S3Store) -> None:
        server.script = [NAMED, PART, PART, PART, DONE]
        await store.put("k", DATA)
        parts = {r.query["partNumber"]: r.body for r in server.requests if r.method == "PUT"}
        assert parts == {"1": DATA[:16], "2": DATA[16:32], "3": DATA[32:]}
        assert server.asked == ["POST", "PUT", "PUT", "PUT", "POST"]
        assert "if-none-match" not in server.requests[-1].headers

    @pytest.mark.parametrize("retried", [hang_up, error(503, "SlowDown"), reply(200)])
    async def test_a_part_is_sent_again(self, server: FakeS3, store: S3Store, retried: Step) -> None:
        server.script = [NAMED, retried, PART, PART, PART, DONE]
        assert await store.put_if_absent("k", DATA) is True
        assert server.requests[-1].headers["if-none-match"] == "*"
        assert len(server.requests) == 6

    async def test_what_failed_is_taken_away(self, server: FakeS3, store: S3Store) -> None:
        server.script = [NAMED, error(403, "AccessDenied"), PART, PART, GONE]
        with pytest.raises(StoreError, match="403 AccessDenied"):
            await store.put("k", DATA)
        assert server.asked[-1] == "DELETE"
        assert server.requests[-1].query["uploadId"] == "it"

    async def test_what_was_cancelled_is_taken_away(self, server: FakeS3, store: S3Store) -> None:
        last = asyncio.Event()

        async def stall_last(fake: FakeS3, request: Request) -> bytes:
            last.set()
            return await stall(fake, request)

        server.script = [NAMED, stall, stall, stall_last, GONE]
        upload = asyncio.ensure_future(store.put("k", DATA))
        await last.wait()
        upload.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upload
        assert server.asked[-1] == "DELETE"

    async def test_the_loser_takes_its_parts_away(self, server: FakeS3, store: S3Store) -> None:
        server.script = [NAMED, PART, PART, PART, error(412, "PreconditionFailed"), GONE]
        assert await store.put_if_absent("k", DATA) is False
        assert server.asked[-1] == "DELETE"

    @pytest.mark.parametrize("second", [error(412, "PreconditionFailed"), error(404, "NoSuchUpload")])
    async def test_doubt_about_the_end_is_said(self, server: FakeS3, store: S3Store, second: Step) -> None:
        server.script = [NAMED, PART, PART, PART, hang_up, second, GONE]
        with pytest.raises(StoreError, match="unknown, so read the key back"):
            await store.put_if_absent("k", DATA)
        assert "DELETE" not in server.asked

    @pytest.mark.parametrize("ends", [[hang_up] * 99, [hang_up, error(403, "AccessDenied")]])
    async def test_after_an_unknown_end_nothing_is_taken_away(
        self, server: FakeS3, store: S3Store, ends: list[Step]
    ) -> None:
        server.script = [NAMED, PART, PART, PART, *ends]
        with pytest.raises(StoreError):
            await store.put("k", DATA)
        assert "DELETE" not in server.asked

    async def test_an_end_that_was_cancelled_is_an_unknown_one(self, server: FakeS3, store: S3Store) -> None:
        ending = asyncio.Event()

        async def stall_at_end(fake: FakeS3, request: Request) -> bytes:
            ending.set()
            return await stall(fake, request)

        server.script = [NAMED, PART, PART, PART, stall_at_end]
        upload = asyncio.ensure_future(store.put("k", DATA))
        await ending.wait()
        upload.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upload
        assert "DELETE" not in server.asked

    async def test_an_end_that_never_began_is_no_doubt(self, server: FakeS3, store: S3Store) -> None:
        server.script = [NAMED, PART, PART, PART, error(503, "SlowDown"), error(403, "AccessDenied"), GONE]
        with pytest.raises(StoreError, match="403 AccessDenied"):
            await store.put("k", DATA)
        assert server.asked[-1] == "DELETE"

    async def test_a_replacement_whose_end_is_unknown_is_sent_again(
        self, server: FakeS3, store: S3Store, time: FakeTime
    ) -> None:
        async def much_later(fake: FakeS3, request: Request) -> bytes:
            time.now += 3600  # an upload may take longer than an operation is tried
            return await PART(fake, request)

        server.script = [NAMED, PART, PART, much_later, hang_up, error(404, "NoSuchUpload")]
        server.script += [NAMED, PART, PART, PART, DONE]
        await store.put("k", DATA)
        assert server.script == []
        assert "DELETE" not in server.asked

    async def test_a_dropped_upload_is_begun_again(self, server: FakeS3, store: S3Store) -> None:
        conflict, dropped = error(409, "ConditionalRequestConflict"), error(404, "NoSuchUpload")
        server.script = [NAMED, PART, PART, PART, conflict, dropped, NAMED, PART, PART, PART, DONE]
        assert await store.put_if_absent("k", DATA) is True
        assert server.script == []

    async def test_an_error_in_a_good_reply_is_an_error(self, server: FakeS3, store: S3Store) -> None:
        bad = reply(200, b"<Error><Code>InternalError</Code></Error>")
        server.script = [NAMED, PART, PART, PART, bad, DONE]
        assert await store.put_if_absent("k", DATA) is True

    async def test_a_server_without_names_for_uploads(self, server: FakeS3, store: S3Store) -> None:
        server.script = [reply(200, b"<R/>")] * 99
        with pytest.raises(StoreError, match="names no upload"):
            await store.put("k", DATA)

    async def test_an_abort_that_fails_hides_nothing(self, server: FakeS3, store: S3Store) -> None:
        server.script = [NAMED, PART, PART, PART, error(403, "AccessDenied"), after_doing(hang_up)]
        with pytest.raises(StoreError, match="403 AccessDenied"):
            await store.put_if_absent("k", DATA)
