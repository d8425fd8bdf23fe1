"""Stores: bytes by key under a URL. They know no format; see :class:`Store` for what they promise."""

from __future__ import annotations

from deltastore.stores.base import Data, ObjectInfo, Store, check_key, check_prefix
from deltastore.stores.local import LocalStore
from deltastore.stores.memory import MemoryStore
from deltastore.stores.open import open_store

__all__ = [
    "Data",
    "LocalStore",
    "MemoryStore",
    "ObjectInfo",
    "Store",
    "check_key",
    "check_prefix",
    "open_store",
]
