"""What is sent in a PUT: the caller's bytes, in pieces, once, and never after the call has ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import aiohttp

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter

__all__ = ["Body"]

_PIECE_BYTES: Final = 256 * 1024


class Body(aiohttp.Payload):
    """The bytes of one request. botocore measures it and passes it on; aiohttp has it written.

    Each piece is copied as it is sent, so that nothing below holds on to the caller's memory. ``stall``
    bounds the seconds until a piece has been taken. It is written once: aiohttp sends a PUT again by itself
    when a connection breaks, and a second creation would be refused because of the first.
    """

    _autoclose = True

    def __init__(self, octets: memoryview, *, stall: float) -> None:
        super().__init__(None, content_type=None)
        self._octets: memoryview | None = octets
        self._size = len(octets)
        self._stall = stall
        self._begun = False

    def __len__(self) -> int:
        return self._size or 0

    @property
    def consumed(self) -> bool:
        return self._begun

    def seek(self, _position: int) -> None:
        """botocore rewinds what it sends to another region; what was refused there was not written."""
        self._begun = False

    def end(self) -> None:
        """Let go of the caller's memory; whoever still sends fails."""
        self._octets = None

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:  # noqa: ARG002
        raise TypeError("the body of an upload is no text")

    async def write(self, writer: AbstractStreamWriter) -> None:
        if self._begun:
            raise ConnectionAbortedError("an upload is sent once")
        self._begun = True
        for start in range(0, len(self), _PIECE_BYTES):
            if self._octets is None:
                raise ConnectionAbortedError("the call that sent this has ended")
            async with asyncio.timeout(self._stall):
                await writer.write(bytes(self._octets[start : start + _PIECE_BYTES]))
