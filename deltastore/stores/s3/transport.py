"""How botocore's requests reach the server: over aiohttp, with nothing followed and nothing unbounded.

aiobotocore's own session follows redirects to wherever the reply says, reads replies of any size, waits for
"100 Continue" before each upload, and hands a large body to the socket at once. Redirects of S3 between
regions are botocore's business, and need none of this.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import aiohttp
from aiobotocore.awsrequest import AioAWSResponse
from botocore.httpsession import ProxyConfiguration, get_cert_path
from yarl import URL

from deltastore.stores.retrying import TransientError
from deltastore.stores.s3.reaching import reaching

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest

__all__ = ["REPLY_BYTES", "Transport"]

#: The most that a reply may hold which is no object: a page of a listing, or an error.
REPLY_BYTES: Final = 16 * 1024 * 1024

_PIECE_BYTES: Final = 64 * 1024
_BUFFER_BYTES: Final = 512 * 1024
_KEEPALIVE_SECONDS: Final = 12.0
_NAMES_SECONDS: Final = 60


class Transport:
    """One pool of connections, for one client of one event loop; botocore names the arguments."""

    def __init__(
        self,
        *,
        timeout: Sequence[float],
        verify: bool | str = True,
        proxies: Mapping[str, str] | None = None,
        proxies_config: Mapping[str, Any] | None = None,
        max_pool_connections: int = 10,
        client_cert: str | tuple[str, str] | None = None,
        **_unused: object,
    ) -> None:
        self._connect, self._read = timeout
        self._proxies = ProxyConfiguration(proxies=proxies, proxies_settings=proxies_config)
        self._verify = verify
        self._certificate = (client_cert,) if isinstance(client_cert, str) else client_cert
        self._size = max_pool_connections
        self._trust: ssl.SSLContext | None = None
        self._session: aiohttp.ClientSession | None = None
        self._answered = False

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._size, keepalive_timeout=_KEEPALIVE_SECONDS, ttl_dns_cache=_NAMES_SECONDS
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect, sock_read=self._read),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Content-Type", "User-Agent"),
            auto_decompress=False,
            read_bufsize=_BUFFER_BYTES,
        )
        # Else a PUT whose connection breaks is sent again, and a creation refused because of itself.
        self._session._retry_connection = False
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            # A closed socket says so to its transport in the next round of the loop, which may be the last.
            await asyncio.sleep(0)

    async def send(self, request: AWSPreparedRequest) -> AioAWSResponse:
        """The reply to one request. That of an object is not read yet; any other is, up to its bound."""
        if self._session is None:
            raise TransientError("the store was closed", unknown=False)
        if self._trust is None and request.url.startswith("https:"):
            self._trust = await asyncio.to_thread(self._context)
        headers = {name: _decoded(value) for name, value in request.headers.items()}
        headers["Accept-Encoding"] = "identity"
        headers.pop("Expect", None)
        with reaching(known=self._answered):
            reply = await self._session.request(
                request.method,
                URL(request.url, encoded=True),
                headers=headers,
                data=request.body,
                allow_redirects=False,
                ssl=self._trust if self._trust is not None else True,
                proxy=self._proxies.proxy_url_for(request.url),
                proxy_headers=self._proxies.proxy_headers_for(request.url) or None,
            )
        self._answered = True
        names = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in reply.raw_headers}
        raw = reply if request.stream_output and reply.status < 300 else _Read(await _bounded(reply))
        return AioAWSResponse(request.url, reply.status, names, raw)

    def _context(self) -> ssl.SSLContext:
        # Asked of botocore for what AWS_CA_BUNDLE and the "ca_bundle" of a profile name.
        context = ssl.create_default_context(cafile=get_cert_path(self._verify) if self._verify else None)
        if not self._verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self._certificate is not None:
            context.load_cert_chain(*self._certificate)
        return context


class _Read:
    """A reply that was read, as botocore asks for it."""

    def __init__(self, octets: bytes) -> None:
        self._octets = octets

    async def read(self) -> bytes:
        return self._octets


async def _bounded(reply: aiohttp.ClientResponse) -> bytes:
    async with reply:
        found = bytearray()
        while piece := await reply.content.read(_PIECE_BYTES):
            found += piece
            if len(found) > REPLY_BYTES:
                reply.close()
                raise TransientError(f"the reply is longer than {REPLY_BYTES} bytes", unknown=True)
        return bytes(found)


def _decoded(value: str | bytes) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else value
