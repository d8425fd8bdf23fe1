"""Uploads in parts, for objects that one request should not hold up or lose."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from deltastore.stores.hashing import checksum
from deltastore.stores.retrying import TransientError, outcome_unknown
from deltastore.stores.s3.wording import RefusedError

if TYPE_CHECKING:
    from deltastore.stores.s3.connection import Connection

__all__ = ["PART_BYTES", "upload"]

PART_BYTES: Final = 16 * 1024 * 1024
_MAX_PARTS: Final = 10_000
_PARTS_IN_FLIGHT: Final = 8
_ABORT_SECONDS: Final = 10.0
_ROUNDS: Final = 3


async def upload(connection: Connection, key: str, octets: memoryview, *, absent: bool) -> bool:
    """Create or replace an object; with ``absent`` only create it, and return whether that happened.

    The object is there at the last request, whole. What failed is taken away again, unless the outcome of
    that request is unknown. Where nothing may or can be taken away the server keeps parts that no key shows,
    for a lifecycle rule to remove.
    """
    for _ in range(_ROUNDS):
        # S3 drops the upload that loses against another completion. One whose end nobody knows it may also
        # have dropped by completing it, and then a replacement is merely made twice.
        with contextlib.suppress(_DroppedError):
            return await _upload_once(connection, key, octets, absent=absent)
    raise TransientError(f"the server dropped {_ROUNDS} uploads", unknown=not absent)


async def _upload_once(connection: Connection, key: str, octets: memoryview, *, absent: bool) -> bool:
    action = "create" if absent else "write"
    name = await _begin(connection, action, key)
    end = _End(connection, action, key, name, absent)
    try:
        parts = await _send_parts(connection, action, key, name, octets)
        done = await end.reach(parts)
    except _DroppedError:
        raise
    except BaseException:
        if not end.doubtful:
            await _abort(connection, key, name)
        raise
    if not done:
        await _abort(connection, key, name)
    return done


async def _begin(connection: Connection, action: str, key: str) -> str:
    async def attempt(_unknown: bool) -> str:
        async with connection.attempt(action, key):
            reply = await connection.ask("create_multipart_upload", key, ChecksumAlgorithm="SHA256")
        name = reply.get("UploadId")
        if not isinstance(name, str):
            raise TransientError("the server names no upload", unknown=False)
        return name

    return await connection.retrying.run(action, key, attempt)


async def _send_parts(
    connection: Connection, action: str, key: str, name: str, octets: memoryview
) -> list[dict[str, Any]]:
    size = max(PART_BYTES, -(-len(octets) // _MAX_PARTS))
    gate = asyncio.Semaphore(_PARTS_IN_FLIGHT)

    async def one(number: int, part: memoryview) -> dict[str, Any]:
        async with gate:
            return await _send_part(connection, action, key, name, number, part)

    starts = range(0, len(octets), size)
    try:
        async with asyncio.TaskGroup() as group:
            sending = [
                group.create_task(one(number, octets[start : start + size]))
                for number, start in enumerate(starts, start=1)
            ]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in sending]


async def _send_part(
    connection: Connection, action: str, key: str, name: str, number: int, part: memoryview
) -> dict[str, Any]:
    digest = await checksum(part)

    async def attempt(_unknown: bool) -> dict[str, Any]:
        async with connection.attempt(action, key, nbytes=len(part)):
            with connection.body(part) as body:
                reply = await connection.ask(
                    "upload_part", key, UploadId=name, PartNumber=number, Body=body, ChecksumSHA256=digest
                )
        if "ETag" not in reply:
            raise TransientError("the server gives a part no ETag", unknown=False)
        return {"PartNumber": number, "ETag": reply["ETag"], "ChecksumSHA256": digest}

    return await connection.retrying.run(action, key, attempt)


@dataclass(slots=True)
class _End:
    """The last request of an upload. ``doubtful``: the object may have been made by it, or may be yet."""

    connection: Connection
    action: str
    key: str
    name: str
    absent: bool
    doubtful: bool = False

    async def reach(self, parts: list[dict[str, Any]]) -> bool:
        """Make the object of its parts; return whether that happened."""

        async def attempt(unknown: bool) -> bool:
            self.doubtful = True
            try:
                await self._ask(parts)
            except TransientError as error:
                self.doubtful = unknown or error.unknown
                raise
            except RefusedError as refused:
                self.doubtful = unknown
                return self._refused(refused)
            return True

        return await self.connection.retrying.run(self.action, self.key, attempt)

    async def _ask(self, parts: list[dict[str, Any]]) -> None:
        condition = {"IfNoneMatch": "*"} if self.absent else {}
        async with self.connection.attempt(self.action, self.key):
            await self.connection.ask(
                "complete_multipart_upload",
                self.key,
                UploadId=self.name,
                MultipartUpload={"Parts": parts},
                **condition,
            )

    def _refused(self, refused: RefusedError) -> bool:
        lost = self.absent and refused.status == 412
        dropped = refused.code == "NoSuchUpload"
        if self.absent and self.doubtful and (lost or dropped):
            raise outcome_unknown(self.action, self.key)
        if dropped:
            raise _DroppedError
        if not lost:
            raise refused
        return False


class _DroppedError(Exception):
    """The server has forgotten the upload, and the object is not made, or may be made again."""


async def _abort(connection: Connection, key: str, name: str) -> None:
    """Take the parts away if the server lets us. A caller that was cancelled waits for this, but not long."""

    async def quietly() -> None:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_ABORT_SECONDS), connection.attempt("delete", key):
                await connection.ask("abort_multipart_upload", key, UploadId=name)

    ending = asyncio.ensure_future(quietly())
    try:
        await asyncio.shield(ending)
    except asyncio.CancelledError:
        await asyncio.wait((ending,))
        raise
