"""ListObjectsV2, page after page: one level or everything under a prefix, as the server orders it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from deltastore.stores.listing import Page, out_of_order
from deltastore.stores.retrying import TransientError

if TYPE_CHECKING:
    from deltastore.stores.s3.connection import Connection

__all__ = ["page_after_page"]

#: A server may answer with empty pages while it passes over what was deleted, but not for ever.
_MAX_EMPTY_PAGES: Final = 100
_SORTS_FOLDERS: Final = ("SeaweedFS",)


async def page_after_page(
    connection: Connection, prefix: str, *, start: str, level: bool
) -> AsyncIterator[Page]:
    """:class:`Pages` of a bucket, all names without the store's prefix.

    Raises ``RefusedError``, and ``StoreError("store_failed")`` when they do not end.
    """
    under = connection.address.under
    asked: dict[str, Any] = {"Bucket": connection.address.bucket, "Prefix": under + prefix}
    if start:
        asked["StartAfter"] = under + start
    if level:
        asked["Delimiter"] = "/"
    empty = 0
    while True:
        reply = await _reply(connection, asked)
        page = _page(reply, under)
        yield page
        if not page.more:
            return
        empty = 0 if page.objects or page.folders else empty + 1
        token = reply.get("NextContinuationToken")
        if not token or token == asked.get("ContinuationToken") or empty > _MAX_EMPTY_PAGES:
            raise out_of_order()
        asked["ContinuationToken"] = token


async def _reply(connection: Connection, asked: Mapping[str, Any]) -> dict[str, Any]:
    async def attempt(_unknown: bool) -> dict[str, Any]:
        async with connection.attempt("list", ""):
            reply = await connection.send("list_objects_v2", **asked)
        entries = reply.get("Contents", ())
        if not all(
            isinstance(entry.get("Key"), str) and isinstance(entry.get("Size"), int) for entry in entries
        ):
            raise TransientError("the listing has an entry without key or size", unknown=False)
        return reply

    return await connection.retrying.run("list", "", attempt)


def _page(reply: Mapping[str, Any], under: str) -> Page:
    entries = [(entry["Key"], entry["Size"]) for entry in reply.get("Contents", ())]
    names = [str(entry.get("Prefix", "")) for entry in reply.get("CommonPrefixes", ())]
    server = str(reply.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("server", ""))
    return Page(
        objects=[(key.removeprefix(under), size) for key, size in entries if key.startswith(under)],
        folders=[name.removeprefix(under) for name in names if name.startswith(under) and name.endswith("/")],
        more=bool(reply.get("IsTruncated")),
        by_folder=server.startswith(_SORTS_FOLDERS),
    )
