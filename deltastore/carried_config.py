"""The model's configuration as a stream carries it."""

from __future__ import annotations

import json
from typing import Any, Final

from deltastore.errors import InputError, NotFoundError
from deltastore.format.limits import CONFIG_BYTES
from deltastore.format.records import AnchorRecord, FileRef, file_key, record_key
from deltastore.log import Log, Manifest
from deltastore.stores.base import Store
from deltastore.stores.named import fetch_named

__all__ = ["carried_config"]

_NAME: Final = "config.json"


async def carried_config(store: Store, manifest: Manifest) -> dict[str, Any]:
    """The ``config.json`` that the last anchor at or below ``manifest`` carries, as a mapping.

    Raises ``NotFoundError("no_object")`` where none carries one, ``CorruptError`` for a damaged one, and
    ``InputError("unknown_model")`` for one that is no JSON object, or of more than ``CONFIG_BYTES``, which is
    not fetched: a stream carries any files.
    """
    async for record in Log(store).backwards(manifest):
        if not isinstance(record, AnchorRecord):
            continue
        for file in record.files:
            if file.name == _NAME:
                return await _fetched(store, file, record_key(record.slot))
    raise NotFoundError(
        "no_object", f"{store.url} carries no {_NAME}: give the model's configuration", where=_NAME
    )


async def _fetched(store: Store, file: FileRef, named_by: str) -> dict[str, Any]:
    key = file_key(file.sha256)
    if file.bytes > CONFIG_BYTES:
        raise InputError(
            "unknown_model",
            f"{key}, the carried {_NAME}, has {file.bytes} bytes, above {CONFIG_BYTES}: give the model's "
            "configuration",
            where=key,
        )
    data = await fetch_named(
        store, key, nbytes=file.bytes, sha256=file.sha256, named_by=named_by, rule="DS063"
    )
    return _parsed(data, key)


def _parsed(data: bytes, key: str) -> dict[str, Any]:
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        message = f"{key}, the carried {_NAME}, is not JSON: {error}: give the model's configuration"
        raise InputError("unknown_model", message, where=key) from None
    if not isinstance(fields, dict):
        message = f"{key}, the carried {_NAME}, is not a JSON object: give the model's configuration"
        raise InputError("unknown_model", message, where=key)
    return fields
