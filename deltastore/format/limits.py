"""Every limit of format version 1 (SPEC section "Limits"), checked before anything is allocated."""

from __future__ import annotations

from typing import Final

__all__ = [
    "CHUNK_ELEMENTS",
    "CONFIG_BYTES",
    "FILE_BYTES",
    "FILE_COUNT",
    "FORMAT",
    "INDEXES",
    "INVENTORY_BYTES",
    "INVENTORY_KEY_TEXT",
    "INVENTORY_OBJECTS",
    "MAX_DEPTH",
    "MAX_INTEGER",
    "MAX_RANK",
    "METADATA_ENTRIES",
    "METADATA_TEXT",
    "NAMES_BYTES",
    "NAME_BYTES",
    "OBJECT_BYTES",
    "OWNED_BOXES",
    "PACKS_PER_VERSION",
    "PACK_BYTES",
    "PATCH_SLACK",
    "REASON_TEXT",
    "RECORD_BYTES",
    "ROWS_PER_PACK",
    "RUN_TEXT",
    "SHARD_PLACES",
    "SLABS",
    "SUMS_BYTES",
    "TABLE_BYTES",
    "TENSORS",
    "VOTE_BYTES",
    "WRITERS",
]

FORMAT: Final = 1

MAX_INTEGER: Final = 2**53 - 1
"""Largest integer in any JSON object: what every JSON parser keeps exactly."""

MAX_DEPTH: Final = 16

RECORD_BYTES: Final = 4 << 20
TABLE_BYTES: Final = 64 << 20
INVENTORY_BYTES: Final = 64 << 20
INVENTORY_OBJECTS: Final = 1 << 18
INVENTORY_KEY_TEXT: Final = 962
"""Longest key of an inventory, which stands behind the 62 characters of its anchor's prefix."""

SUMS_BYTES: Final = 64 << 20
PACK_BYTES: Final = 1 << 30
PACKS_PER_VERSION: Final = 8192
ROWS_PER_PACK: Final = 1 << 22
OBJECT_BYTES: Final = 1 << 31
"""Largest object of an anchor."""

SHARD_PLACES: Final = 1 << 20
"""Entries of a shard's index."""

FILE_BYTES: Final = 256 << 20
FILE_COUNT: Final = 256

CONFIG_BYTES: Final = 16 << 20
"""Largest configuration that is looked at, carried or not. The format allows larger ones."""

PATCH_SLACK: Final = 256
"""A patch is at most twice as long as its chunk's elements, plus this many bytes."""

CHUNK_ELEMENTS: Final = 1 << 20
MAX_RANK: Final = 16
NAME_BYTES: Final = 1024
SLABS: Final = 4096
TENSORS: Final = 1 << 21
NAMES_BYTES: Final = 1 << 28
"""All patterns of a table together, each as often as it has members."""

INDEXES: Final = 8

METADATA_ENTRIES: Final = 64
METADATA_TEXT: Final = 1024

WRITERS: Final = 65536
VOTE_BYTES: Final = 4 << 20
"""Largest call, join, attempt, vote or ending."""

OWNED_BOXES: Final = 1 << 20
RUN_TEXT: Final = 200
REASON_TEXT: Final = 2000
