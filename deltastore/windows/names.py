"""What the packs of all steps of a course are called."""

from __future__ import annotations

from typing import Final

from deltastore.format.pack import pack_key
from deltastore.format.records import DeltaRecord, record_key
from deltastore.windows.course import Course

__all__ = ["PackNames"]

_HASH_BYTES: Final = 32


class PackNames:
    """The hashes of all packs: 32 bytes each, and two numbers for each step."""

    def __init__(self, course: Course) -> None:
        self._course = course
        self._first: list[int] = []
        self._slots: list[int] = []
        self._hashes = bytearray()

    def add(self, record: DeltaRecord | None) -> None:
        """The manifest of the next step; None for one that is left out."""
        self._first.append(len(self._hashes) // _HASH_BYTES)
        self._slots.append(-1 if record is None else record.slot)
        for pack in () if record is None else record.packs:
            self._hashes += bytes.fromhex(pack.sha256)

    def record(self, step: int) -> str:
        """Where the manifest of a step stands, which is not left out."""
        return record_key(self._slots[step])

    def pack(self, step: int, number: int) -> str:
        """Where pack ``number`` of a step stands."""
        start = (self._first[step] + number) * _HASH_BYTES
        return pack_key(self._course.steps[step].version, self._hashes[start : start + _HASH_BYTES].hex())
