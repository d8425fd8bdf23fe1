"""Stores: bytes by key under a URL. They know no format; see :class:`Store` for what they promise."""

from __future__ import annotations

from deltastore.stores.base import Data, ObjectInfo, Store, Tagged, check_key, check_prefix
from deltastore.stores.faults import Fault, Faults, FaultyStore
from deltastore.stores.local import LocalStore
from deltastore.stores.memory import MemoryStore
from deltastore.stores.open import open_store
from deltastore.stores.single_writer import SingleWriterStore

__all__ = [
    "Data",
    "Fault",
    "Faults",
    "FaultyStore",
    "LocalStore",
    "MemoryStore",
    "ObjectInfo",
    "SingleWriterStore",
    "Store",
    "Tagged",
    "check_key",
    "check_prefix",
    "open_store",
]
