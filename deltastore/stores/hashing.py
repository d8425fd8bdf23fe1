"""SHA-256 of the caller's bytes, off the event loop where it takes long enough to matter."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from typing import Final

__all__ = ["checksum", "sha256"]

_AT_ONCE_BYTES: Final = 64 * 1024


async def sha256(octets: bytes | memoryview) -> bytes:
    """The digest, 32 bytes. A cancelled call ends only when nothing reads ``octets`` any more."""
    if len(octets) <= _AT_ONCE_BYTES:
        return hashlib.sha256(octets).digest()
    running = asyncio.get_running_loop().run_in_executor(None, _sha256, octets)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await _ended(running)
        raise


async def checksum(octets: bytes | memoryview) -> str:
    """The digest as S3 writes it in ``x-amz-checksum-sha256``."""
    return base64.b64encode(await sha256(octets)).decode("ascii")


def _sha256(octets: bytes | memoryview) -> bytes:
    return hashlib.sha256(octets).digest()


async def _ended(running: asyncio.Future[bytes]) -> None:
    while not running.done():
        try:
            await asyncio.wait((running,))
        except asyncio.CancelledError:
            # Asked again to hurry; the caller's memory is still being read.
            continue
