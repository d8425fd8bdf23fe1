"""One event loop's client of the server: made at its first use, ended with the loop at the latest."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from aiobotocore.config import AioConfig
from aiobotocore.session import AioSession
from botocore.loaders import create_loader

from deltastore.stores.address import BucketAddress
from deltastore.stores.retrying import Retrying, TransientError
from deltastore.stores.s3.body import Body
from deltastore.stores.s3.discretion import keep_secrets
from deltastore.stores.s3.failures import judged
from deltastore.stores.s3.transport import Transport

__all__ = ["CONCURRENCY", "Connection", "connected"]

#: Requests in flight unless the URL says otherwise.
CONCURRENCY: Final = 32


@dataclass(frozen=True, slots=True)
class Connection:
    """A client, the bucket that it works in, and the gate that bounds its requests in flight."""

    client: Any
    gate: asyncio.Semaphore
    address: BucketAddress
    retrying: Retrying

    def place(self, key: str) -> dict[str, str]:
        """Bucket and key as S3 names them."""
        return {"Bucket": self.address.bucket, "Key": self.address.under + key}

    async def ask(self, operation: str, key: str, **parameters: object) -> dict[str, Any]:
        """What the server answers to one request about a key, as botocore reads it."""
        return await self.send(operation, **self.place(key), **parameters)

    async def send(self, operation: str, **parameters: object) -> dict[str, Any]:
        """What the server answers to one request. A reply that cannot be read is worth another attempt."""
        try:
            found: dict[str, Any] = await getattr(self.client, operation)(**parameters)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            # botocore trusts the server to send numbers, dates and fields where they belong.
            raise TransientError(
                f"the reply cannot be read ({type(error).__name__})", unknown=True
            ) from error
        return found

    @contextlib.asynccontextmanager
    async def attempt(self, action: str, key: str, *, nbytes: int = 0) -> AsyncIterator[asyncio.Timeout]:
        """Room for one request that sends this many bytes. Raises what :func:`judged` makes of failures."""
        async with self.gate:
            with judged(action, key):
                async with asyncio.timeout(self.retrying.patience(nbytes)) as timer:
                    yield timer

    def extend(self, timer: asyncio.Timeout, nbytes: int) -> None:
        """Give an attempt the time that receiving this many bytes may take."""
        timer.reschedule(asyncio.get_running_loop().time() + self.retrying.patience(nbytes))

    @contextlib.contextmanager
    def body(self, octets: memoryview) -> Iterator[Body]:
        """``octets`` as the body of one request; nothing reads them after the block."""
        body = Body(octets, stall=self.retrying.read)
        try:
            yield body
        finally:
            body.end()


async def connected(address: BucketAddress, retrying: Retrying) -> AsyncGenerator[Connection, None]:
    """Yield one connection, and end it when closed.

    It is a generator because event loops close theirs: a store that nobody closed leaves nothing behind.
    """
    concurrency = address.concurrency or CONCURRENCY
    keep_secrets()
    with judged("open", ""):
        session = await asyncio.to_thread(_session, address)
        style = _style(address)
        client = await _client(session, address, retrying, concurrency, style)
        if style == "auto" and not _is_aws(client.meta.endpoint_url):
            await client.close()
            client = await _client(session, address, retrying, concurrency, "path")
    try:
        yield Connection(client, asyncio.Semaphore(concurrency), address, retrying)
    finally:
        await client.close()


def _session(address: BucketAddress) -> AioSession:
    session = AioSession(profile=address.profile)
    session.register_component("data_loader", _descriptions(session.get_config_variable("data_path")))
    return session


@functools.cache
def _descriptions(path: str | None) -> Any:
    # What botocore knows of S3 is a megabyte of JSON: read once, and by whoever calls this in a thread.
    loader = create_loader(path)
    for description in ("service-2", "endpoint-rule-set-1"):
        loader.load_service_model("s3", description)
    for description in ("endpoints", "partitions", "sdk-default-configuration"):
        loader.load_data(description)
    return loader


async def _client(
    session: AioSession, address: BucketAddress, retrying: Retrying, concurrency: int, style: str
) -> Any:
    config = AioConfig(
        http_session_cls=Transport,
        connect_timeout=retrying.connect,
        read_timeout=retrying.read,
        max_pool_connections=concurrency,
        # Retries are ours: only we know which outcome is unknown.
        retries={"total_max_attempts": 1, "mode": "standard"},
        # The checksum of the body is among the signed headers, so signing the body again would prove nothing.
        s3={"addressing_style": style, "payload_signing_enabled": False},
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        # Parameters are ours, and a Body is of no type that botocore knows.
        parameter_validation=False,
    )
    region = address.region or session.get_config_variable("region") or "us-east-1"
    made = session.create_client("s3", region_name=region, endpoint_url=address.endpoint, config=config)
    client = await made.__aenter__()
    # Asked for by header: by parameter botocore would check it on the event loop.
    client.meta.events.register("before-call.s3.GetObject", _ask_for_checksum)
    return client


def _ask_for_checksum(params: dict[str, Any], **_: object) -> None:
    if "Range" not in params["headers"]:
        params["headers"]["x-amz-checksum-mode"] = "ENABLED"


def _style(address: BucketAddress) -> str:
    if address.path_style is None:
        return "auto" if address.endpoint is None or _is_aws(address.endpoint) else "path"
    return "path" if address.path_style else "virtual"


def _is_aws(endpoint: str) -> bool:
    host = urlsplit(endpoint).hostname or ""
    return host.endswith((".amazonaws.com", ".amazonaws.com.cn"))
