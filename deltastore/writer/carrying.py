"""The files that travel beside the weights, put into the store (SPEC section "Carried files")."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from deltastore.checkpoints.carried import CarriedFile, carried_files
from deltastore.format.canonical import sha256_hex
from deltastore.format.records import FileRef, file_key
from deltastore.stores.base import Store

__all__ = ["changed_files", "put_files"]


async def put_files(store: Store, files: Iterable[CarriedFile]) -> tuple[FileRef, ...]:
    """Put each file under the key that its content gives it. One file is in memory at a time.

    Returns what an anchor's record names them by; all are durable. Raises what ``CarriedFile.read`` raises,
    and ``StoreError``.
    """
    refs = []
    for file in files:
        content = await asyncio.to_thread(file.read)
        sha256 = await asyncio.to_thread(sha256_hex, content)
        await store.put(file_key(sha256), content)
        refs.append(FileRef(name=file.name, bytes=len(content), sha256=sha256))
    return tuple(refs)


async def changed_files(path: str | Path, carried: Iterable[FileRef]) -> tuple[str, ...]:
    """The names of files beside the checkpoint at ``path`` that are not as ``carried`` has them."""
    known = {ref.name: ref.sha256 for ref in carried}
    changed = []
    for file in (await asyncio.to_thread(carried_files, path)).files:
        content = await asyncio.to_thread(file.read)
        if await asyncio.to_thread(sha256_hex, content) != known.get(file.name):
            changed.append(file.name)
    return tuple(changed)
