"""One record of the log in a few facts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

from deltastore.format.records import AnchorRecord, DeltaRecord, EpochRecord, MetadataValue, Record

__all__ = ["Summary"]


@dataclass(frozen=True, slots=True)
class Summary:
    """What ``log`` and ``follow`` say of a record. None: a record of this kind has no such thing.

    ``time`` is milliseconds since 1970. ``base`` is the version that a delta builds on, ``resumes`` the one
    that an epoch starts from. ``changed`` of ``elements`` elements changed; the version took ``bytes``.
    """

    slot: int
    kind: str
    epoch: int
    time: int
    sha256: str
    version: int | None = None
    base: int | None = None
    resumes: int | None = None
    writer: str | None = None
    changed: int | None = None
    elements: int | None = None
    bytes: int | None = None
    digest: str | None = None
    metadata: dict[str, MetadataValue] | None = None

    @classmethod
    def of(cls, record: Record) -> Self:
        """The facts of one record."""
        own: dict[str, Any] = {}
        if isinstance(record, EpochRecord):
            own = {"resumes": record.resumes, "writer": record.writer}
        elif isinstance(record, AnchorRecord | DeltaRecord):
            own = {
                "version": record.version,
                "base": record.base if isinstance(record, DeltaRecord) else None,
                "changed": record.statistics.changed,
                "elements": record.statistics.elements,
                "bytes": record.statistics.bytes,
                "digest": record.digest,
                "metadata": record.metadata,
            }
        return cls(record.slot, record.kind, record.epoch, record.time, record.sha256, **own)

    @property
    def step(self) -> MetadataValue:
        """The trainer's step, if its metadata has one."""
        return None if self.metadata is None else self.metadata.get("step")

    def facts(self) -> dict[str, Any]:
        """Everything that is not None, for JSON."""
        return {name: value for name, value in asdict(self).items() if value is not None}
