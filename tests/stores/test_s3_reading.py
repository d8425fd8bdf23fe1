"""Reads and listings from a server that lies, cuts short, goes on for ever, or refuses."""

from __future__ import annotations

import tracemalloc

import pytest

from deltastore.errors import CorruptError, NotFoundError, StoreError
from deltastore.stores import Tagged
from deltastore.stores.s3 import S3Store
from deltastore.stores.s3.transport import REPLY_BYTES

from .fake_s3 import FakeS3, Request, Step, error, hang_up, message, page, reply, stall
from .operations import OPERATIONS, keys_of
from .patience import FakeTime
from .s3_fixtures import server, store, time

__all__ = ["server", "store", "time"]

CUT = reply(200, b"1234", Content_Length="5", Connection="close")
WRONG = reply(200, b"12345", x_amz_checksum_sha256="47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=")


async def endless(fake: FakeS3, request: Request) -> bytes:
    size = f"{REPLY_BYTES + 1:x}\r\n".encode()
    head = b"HTTP/1.1 %d Status\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    return head % (200 if request.method == "GET" else 403) + size + b"<" * (REPLY_BYTES + 1)


@pytest.mark.parametrize(
    "bad", [CUT, WRONG, hang_up, reply(500), reply(200, b"not all", Content_Length="9" * 30)]
)
async def test_a_bad_reply_is_asked_for_again(server: FakeS3, store: S3Store, bad: Step) -> None:
    server.objects["k"] = b"12345"
    server.script = [bad]
    assert await store.get("k", limit=5) == b"12345"
    assert server.asked == ["GET", "GET"]


@pytest.mark.parametrize("bad", [CUT, WRONG])
async def test_bytes_that_stay_bad_are_not_given_out(server: FakeS3, store: S3Store, bad: Step) -> None:
    server.script = [bad] * 99
    with pytest.raises(StoreError, match="cannot read k after 18 attempts") as caught:
        await store.get("k", limit=5)
    assert caught.value.code == "store_failed"


async def test_no_answer_is_an_end_too(server: FakeS3, time: FakeTime) -> None:
    server.objects["k"] = b"12345"
    server.script = [stall]
    async with S3Store(server.address, retrying=time.retrying(read=0.1)) as store:
        assert await store.get("k", limit=5) == b"12345"


async def test_a_checksum_of_checksums_is_not_compared(server: FakeS3, store: S3Store) -> None:
    server.script = [
        reply(200, b"12345", x_amz_checksum_sha256="47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=-3"),
        reply(200, b"12345", x_amz_checksum_sha256="47DE", x_amz_checksum_type="COMPOSITE"),
    ]
    assert await store.get("k", limit=5) == b"12345"
    assert await store.get("k", limit=5) == b"12345"


async def test_a_huge_object_is_refused_by_its_length(server: FakeS3, store: S3Store) -> None:
    server.script = [reply(200, b"1234", Content_Length=str(10**13))]
    tracemalloc.start()
    with pytest.raises(CorruptError) as caught:
        await store.get("k", limit=10**9)
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()
    assert (caught.value.code, caught.value.where) == ("too_large", "k")
    assert server.asked == ["GET"]


async def test_a_body_without_length_is_not_read(server: FakeS3, store: S3Store) -> None:
    server.script = [endless]
    with pytest.raises(StoreError, match="does not tell its length"):
        await store.get("k", limit=5)


async def test_an_endless_refusal_is_cut(server: FakeS3, time: FakeTime) -> None:
    server.script = [endless]
    async with S3Store(server.address, retrying=time.retrying(deadline=0)) as store:
        with pytest.raises(StoreError, match="longer than 16777216 bytes"):
            await store.put("k", b"x")


async def test_ranges_are_what_was_asked(server: FakeS3, store: S3Store) -> None:
    def ranged(data: bytes, told: str) -> Step:
        return reply(206, data, Content_Range=told)

    server.script = [ranged(b"234", "bytes 1-3/5")]
    assert await store.get_range("k", 1, 3) == b"234"
    assert server.requests[0].headers["range"] == "bytes=1-3"
    server.script = [
        ranged(b"123", "bytes 0-2/5"),
        ranged(b"2345", "bytes 1-4/5"),
        ranged(b"234", "bytes 1-3/5"),
    ]
    assert await store.get_range("k", 1, 3) == b"234"
    server.script = [ranged(b"45", "bytes 3-4/5")]
    with pytest.raises(CorruptError, match="has 5 bytes") as caught:
        await store.get_range("k", 3, 3)
    assert caught.value.code == "bad_length"
    for ignoring in (reply(200, b"12345"), ranged(b"234", "1-3")):
        server.script = [ignoring]
        with pytest.raises(StoreError, match="ignores ranges") as unfit:
            await store.get_range("k", 1, 3)
        assert unfit.value.code == "store_unfit"


async def test_a_range_beyond_the_end_costs_one_more_look(server: FakeS3, store: S3Store) -> None:
    server.objects["k"] = b"12345"
    server.script = [error(416, "InvalidRange")]
    with pytest.raises(CorruptError, match="has 5 bytes"):
        await store.get_range("k", 5, 1)
    server.script = [error(416, "InvalidRange")]
    with pytest.raises(NotFoundError):
        await store.get_range("absent", 5, 1)
    assert server.asked == ["GET", "HEAD"] * 2


async def test_what_has_not_changed_costs_one_request(server: FakeS3, store: S3Store) -> None:
    server.objects["k"] = b"one"
    first = await store.get_changed("k", tag=None, limit=9)
    assert first is not None
    assert first.data == b"one"
    assert await store.get_changed("k", tag=first.tag, limit=9) is None
    assert server.asked == ["GET", "GET"]
    server.objects["k"] = b"two"
    second = await store.get_changed("k", tag=first.tag, limit=9)
    assert second is not None
    assert (second.data, second.tag != first.tag) == (b"two", True)
    server.script = [reply(200, b"two", ETag=second.tag)]  # a server that ignores the condition
    assert await store.get_changed("k", tag=second.tag, limit=9) is None
    with pytest.raises(NotFoundError):
        await store.get_changed("absent", tag=first.tag, limit=9)


async def test_without_tags_every_answer_is_new(server: FakeS3, store: S3Store) -> None:
    server.script = [reply(200, b"one"), reply(200, b"one")]
    found = await store.get_changed("k", tag=None, limit=9)
    assert found == Tagged(b"one", "sha256:7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed")
    assert await store.get_changed("k", tag=found.tag, limit=9) is None


@pytest.mark.parametrize(
    ("refusal", "operation", "advice"),
    [
        (error(403, "AccessDenied"), "get", "grant s3:ListBucket"),
        (reply(403), "stat", "grant s3:ListBucket"),
        (error(403, "AccessDenied"), "put", "what these credentials may do in bucket fake"),
        (error(403, "InvalidAccessKeyId"), "get", "AWS_ACCESS_KEY_ID"),
        (error(403, "SignatureDoesNotMatch"), "put_if_absent", "AWS_SECRET_ACCESS_KEY"),
        (error(403, "RequestTimeTooSkewed"), "get", "clock"),
        (error(400, "ExpiredToken"), "get", "expired"),
        (error(404, "NoSuchBucket"), "get", "create bucket fake"),
        (error(404, "NoSuchBucket"), "put_if_absent", "create bucket fake"),
        (error(404, "NoSuchBucket"), "delete", "create bucket fake"),
        (error(400, "Odd\nCode"), "get", "answers 400; check the server's log"),
        (reply(418, b"<html>"), "put", "answers 418"),
    ],
)
async def test_a_refusal_says_what_to_do(
    server: FakeS3, store: S3Store, refusal: Step, operation: str, advice: str
) -> None:
    server.script = [refusal]
    with pytest.raises(StoreError) as caught:
        await OPERATIONS[operation](store, "k")
    assert advice in str(caught.value)
    assert (caught.value.code, caught.value.where) == ("store_failed", "k")
    assert "\n" not in str(caught.value)
    assert server.script == []


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@pytest.mark.parametrize("operation", ["get", "put", "put_if_absent"])
async def test_a_redirect_is_not_followed(
    server: FakeS3, store: S3Store, status: int, operation: str
) -> None:
    async with FakeS3() as elsewhere:
        location = f"http://127.0.0.1:{elsewhere.port}/fake/k"
        away = error(status, "PermanentRedirect", Location=location)
        server.script = [away] * 3
        with pytest.raises(StoreError, match="region"):
            await OPERATIONS[operation](store, "k")
        assert elsewhere.requests == []


async def test_garbage_is_asked_for_again(server: FakeS3, store: S3Store) -> None:
    bad = [
        reply(200, b"<ListBucketResult><Contents>"),
        reply(200, b"\xff\xfe\x00"),
        reply(200, b"<ListBucketResult><Contents><Key>a</Key><Size>x</Size></Contents></ListBucketResult>"),
        reply(200, b"<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>"),
    ]
    server.script = [*bad, page("a")]
    assert await keys_of(store) == ["a"]
    assert len(server.requests) == 5


async def test_a_listing_in_pages(server: FakeS3, store: S3Store) -> None:
    server.script = [page("a", "a/..", "a//b", "a/b", token="1"), page(token="2"), page("c d", "e")]
    assert await keys_of(store) == ["a", "a/b", "e"]
    tokens = [request.query.get("continuation-token") for request in server.requests]
    assert tokens == [None, "1", "2"]


@pytest.mark.parametrize(
    "script",
    [
        [page("a", "b", token="1"), page("a", "b", token="2")],
        [page("b", token="1"), page("a", token="2")],
        [page("a", token="1"), page("b", token="1")],
        [page("a", token="1"), page("a")],
        [page(token="1"), page(token="1")],
        [page(token=str(number)) for number in range(102)],
    ],
    ids=["again", "back", "token", "twice", "empty", "endless"],
)
async def test_a_listing_that_does_not_advance_ends(
    server: FakeS3, store: S3Store, script: list[Step]
) -> None:
    server.script = script
    with pytest.raises(StoreError, match="goes back or in circles"):
        await keys_of(store)


async def test_a_page_out_of_order_is_put_in_order(server: FakeS3, store: S3Store) -> None:
    server.script = [page("a/b", "a-b", "a", "a-b")]
    assert await keys_of(store) == ["a", "a-b", "a/b"]


async def test_a_server_of_folders_is_listed_folder_by_folder(server: FakeS3, store: S3Store) -> None:
    def level(*folders: str, keys: tuple[str, ...] = ()) -> Step:
        found = "".join(f"<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>" for name in folders)
        found += "".join(f"<Contents><Key>{key}</Key><Size>1</Size></Contents>" for key in keys)
        return reply(200, f"<ListBucketResult>{found}</ListBucketResult>".encode())

    server.script = [
        page("a/b", "a-b", token="1"),
        level("a/", "-x/", keys=("a-b", "a.c")),
        level("a/b/", keys=("a/0", "a/b")),
        level(keys=("a/b/c",)),
    ]
    assert await keys_of(store) == ["a-b", "a.c", "a/0", "a/b", "a/b/c"]
    assert [request.query["prefix"] for request in server.requests] == ["", "", "a/", "a/b/"]


async def test_what_cannot_follow_is_not_asked_for(server: FakeS3, store: S3Store) -> None:
    assert await keys_of(store, "a/", "b") == []
    assert server.requests == []


def test_a_reply_of_the_fake_is_http() -> None:
    assert message(200, b"x", A_B="c") == b"HTTP/1.1 200 Status\r\nContent-Length: 1\r\nA-B: c\r\n\r\nx"
