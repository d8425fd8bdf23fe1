"""Servers that cannot be reached: what will never work is said at once, and what may yet is tried again."""

from __future__ import annotations

import asyncio
import datetime
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from deltastore.errors import StoreError
from deltastore.stores import Store
from deltastore.stores.objects import ObjectsStore
from deltastore.stores.retrying import Retrying
from deltastore.stores.s3 import S3Store, transport
from tests.servers.credentials import only_our_credentials

from .fake_s3 import FakeS3, message, reply
from .patience import FakeTime
from .s3_fixtures import server, time

__all__ = ["server", "time"]

Opener = Callable[[str, Retrying], Store]


def over_s3(endpoint: str, retrying: Retrying) -> Store:
    return S3Store(replace(FakeS3().address, endpoint=endpoint), retrying=retrying)


def over_obstore(endpoint: str, retrying: Retrying) -> Store:
    address = replace(FakeS3().address, scheme="s3+obstore", endpoint=endpoint)
    return ObjectsStore(address, retrying=retrying)


@pytest.fixture(params=[over_s3, over_obstore])
def opened(request: pytest.FixtureRequest) -> Opener:
    found: Opener = request.param
    return found


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def identity(folder: Path, name: str) -> Path:
    """A key and a certificate for the host ``name``, signed by itself, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(who, who, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    path = folder / "identity.pem"
    path.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain) + certificate.public_bytes(pem)
    )
    return path


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    return identity(tmp_path, "elsewhere")


@pytest.fixture
async def secure_port(elsewhere: Path) -> AsyncIterator[int]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(elsewhere)

    async def close(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    with only_our_credentials():
        async with await asyncio.start_server(close, "127.0.0.1", 0, ssl=context) as listening:
            yield listening.sockets[0].getsockname()[1]


@pytest.fixture
async def plain_port() -> AsyncIterator[int]:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(99)
        writer.write(message(400))
        await writer.drain()
        writer.close()

    with only_our_credentials():
        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as listening:
            yield listening.sockets[0].getsockname()[1]


async def test_https_to_a_plain_port(plain_port: int, time: FakeTime, opened: Opener) -> None:
    async with opened(f"https://127.0.0.1:{plain_port}", time.retrying()) as store:
        with pytest.raises(StoreError, match=r"no TLS connection: .*check http:// or https://") as caught:
            await store.put("k", b"x")
    assert (caught.value.code, caught.value.where) == ("store_failed", "k")
    assert time.pauses == []


async def test_a_certificate_that_nobody_vouches_for(
    secure_port: int, time: FakeTime, opened: Opener
) -> None:
    async with opened(f"https://127.0.0.1:{secure_port}", time.retrying()) as store:
        with pytest.raises(StoreError, match=r"no TLS connection: .*certificate.* the CA that is trusted"):
            await store.get("k", limit=1)
    assert time.pauses == []


async def test_a_certificate_for_another_host(
    secure_port: int, time: FakeTime, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(elsewhere))
    async with over_s3(f"https://127.0.0.1:{secure_port}", time.retrying()) as store:
        with pytest.raises(StoreError, match=r"mismatch, certificate is not valid for '127\.0\.0\.1'"):
            await store.get("k", limit=1)
    assert time.pauses == []


@pytest.mark.usefixtures("server")
async def test_a_refused_port_may_be_a_server_that_starts(time: FakeTime, opened: Opener) -> None:
    async with opened(f"http://127.0.0.1:{free_port()}", time.retrying()) as store:
        with pytest.raises(StoreError, match="after 18 attempts: connection refused; check the server"):
            await store.put("k", b"x")


@pytest.mark.usefixtures("server")
async def test_a_server_may_start_late(time: FakeTime, opened: Opener) -> None:
    late = FakeS3(port=free_port())

    async def sleep(seconds: float) -> None:
        await time.sleep(seconds)
        if len(time.pauses) == 3:
            await late.__aenter__()

    async with opened(late.address.endpoint or "", replace(time.retrying(), sleep=sleep)) as store:
        # None of the refused attempts can have created it.
        late.objects["k"] = b"theirs"
        assert await store.put_if_absent("k", b"x") is False
    await late.__aexit__(None, None, None)


def no_name(*_: object, **__: object) -> None:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


async def test_a_name_that_no_host_has(
    server: FakeS3, time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", no_name)
    async with over_s3(f"http://nowhere.invalid:{server.port}", time.retrying()) as store:
        with pytest.raises(StoreError, match="no host has the server's name; check endpoint="):
            await store.get("k", limit=1)
    assert time.pauses == []


async def test_a_name_that_was_there_before_is_waited_for(
    server: FakeS3, time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_NAMES_SECONDS", 0)
    async with over_s3(f"http://localhost:{server.port}", time.retrying()) as store:
        server.script = [reply(200, Connection="close")]
        await store.put("k", b"x")
        monkeypatch.setattr(socket, "getaddrinfo", no_name)
        with pytest.raises(StoreError, match="after 18 attempts: the name of the server was not found"):
            await store.get("k", limit=1)
