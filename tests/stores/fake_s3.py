"""A server on loopback that keeps objects as S3 does, until a script says otherwise.

Each request takes the next step of the script; after its end every step is :func:`honest`. A step may answer
with any bytes at all, wait, or hang up. Everything asked is in ``requests``.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from urllib.parse import parse_qsl, unquote, urlsplit

from deltastore.stores.address import BucketAddress

BUCKET = "fake"


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked; header names are in lower case."""

    method: str
    key: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


Step = Callable[["FakeS3", Request], Awaitable[bytes]]


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass
class FakeS3:
    """The server, while in its context. ``port`` 0 takes a free one."""

    script: list[Step] = field(default_factory=list)
    port: int = 0
    objects: dict[str, bytes] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    #: While cleared, no body is taken. What came of one that broke off is in ``broken``.
    taking: asyncio.Event = field(default_factory=_set_event)
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    broken: bytes = b""
    broke: asyncio.Event = field(default_factory=asyncio.Event)
    _server: asyncio.Server | None = None
    _serving: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def address(self) -> BucketAddress:
        return BucketAddress("s3", BUCKET, endpoint=f"http://127.0.0.1:{self.port}")

    @property
    def asked(self) -> list[str]:
        """The methods, in order."""
        return [request.method for request in self.requests]

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                request = await self._read(reader)
                self.requests.append(request)
                step = self.script.pop(0) if self.script else honest
                answer = await step(self, request)
                writer.write(answer)
                await writer.drain()
                if b"\r\nConnection: close\r\n" in answer:
                    return
        except (OSError, asyncio.IncompleteReadError):
            writer.transport.abort()
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Request:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ", 2)
        split = (line.partition(":") for line in head[1:])
        headers = {name.lower(): value.strip() for name, _, value in split}
        self.waiting.set()
        await self.taking.wait()
        try:
            body = await reader.readexactly(int(headers.get("content-length", "0")))
        except asyncio.IncompleteReadError as error:
            self.broken = error.partial
            self.broke.set()
            raise
        parts = urlsplit(target)
        key = unquote(parts.path).removeprefix(f"/{BUCKET}").lstrip("/")
        return Request(method, key, dict(parse_qsl(parts.query, keep_blank_values=True)), headers, body)


def reply(status: int, body: bytes = b"", **headers: str) -> Step:
    """Answer with this; ``_`` in a header's name stands for ``-``, and a given length is sent as it is."""

    async def step(server: FakeS3, request: Request) -> bytes:
        return message(status, body, **headers)

    return step


def message(status: int, body: bytes = b"", **headers: str) -> bytes:
    """A reply as it is sent."""
    lines = {"Content-Length": str(len(body))} | {k.replace("_", "-"): v for k, v in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 {status} Status\r\n{head}\r\n".encode() + body


def error(status: int, code: str, text: str = "text", **headers: str) -> Step:
    """Answer as S3 does when it refuses."""
    return reply(status, f"<Error><Code>{code}</Code><Message>{text}</Message></Error>".encode(), **headers)


def page(*keys: str, token: str = "") -> Step:
    """Answer with a page of a listing; with a token, others follow."""
    entries = "".join(f"<Contents><Key>{key}</Key><Size>1</Size></Contents>" for key in keys)
    more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>"
    return reply(200, f"<ListBucketResult>{entries}{more if token else ''}</ListBucketResult>".encode())


async def hang_up(server: FakeS3, request: Request) -> bytes:
    """Break the connection."""
    raise ConnectionAbortedError


async def stall(server: FakeS3, request: Request) -> bytes:
    """Never answer."""
    await asyncio.Event().wait()
    raise AssertionError


def after_doing(step: Step) -> Step:
    """Do what is asked, and then this: the reply is lost, or lies."""

    async def both(server: FakeS3, request: Request) -> bytes:
        await honest(server, request)
        return await step(server, request)

    return both


async def honest(server: FakeS3, request: Request) -> bytes:
    """Do what is asked, as S3 does."""
    data = server.objects.get(request.key)
    if request.method == "PUT":
        if data is not None and request.headers.get("if-none-match") == "*":
            return message(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        server.objects[request.key] = request.body
        return message(200, ETag=_tag(request.body))
    if request.method == "DELETE":
        server.objects.pop(request.key, None)
        return message(204)
    if data is None:
        return message(404, b"" if request.method == "HEAD" else b"<Error><Code>NoSuchKey</Code></Error>")
    if request.headers.get("if-none-match") == _tag(data):
        return message(304)
    if request.method == "HEAD":
        return message(200, Content_Length=str(len(data)), ETag=_tag(data))
    checksum = base64.b64encode(hashlib.sha256(data).digest()).decode()
    return message(200, data, ETag=_tag(data), x_amz_checksum_sha256=checksum)


def _tag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'
