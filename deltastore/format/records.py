"""Log records and manifests (SPEC sections "Log records", "Manifests").

The record that commits a version is its manifest. Each record names the sha256 of the one before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from deltastore.errors import CorruptError, InputError, RuleError, UnsupportedError
from deltastore.format.canonical import parse_canonical
from deltastore.format.limits import (
    FILE_BYTES,
    FILE_COUNT,
    INVENTORY_BYTES,
    MAX_INTEGER,
    METADATA_ENTRIES,
    METADATA_TEXT,
    PACK_BYTES,
    PACKS_PER_VERSION,
    RECORD_BYTES,
    ROWS_PER_PACK,
    SLABS,
    WRITERS,
)
from deltastore.format.pack import index_bytes
from deltastore.format.sealed import Count, Hex16, Hex32, Sealed, Sha256, Strict, breach, first_problem

__all__ = [
    "AnchorRecord",
    "AnchorRef",
    "BirthRecord",
    "Certificate",
    "DeltaRecord",
    "EpochRecord",
    "FileRef",
    "Label",
    "MetadataValue",
    "OptionalCertificate",
    "PackRef",
    "Record",
    "SkippedRecord",
    "Statistics",
    "VersionRecord",
    "check_label",
    "check_metadata",
    "file_key",
    "parse_record",
    "record_key",
    "table_key",
]

Label = Annotated[str, Field(max_length=200)]
Slab = Annotated[int, Field(ge=0, le=SLABS)]
MetadataKey = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
MetadataText = Annotated[str, Field(max_length=METADATA_TEXT)]
MetadataValue = MetadataText | bool | Annotated[int, Field(ge=-(2**53) + 1, le=2**53 - 1)] | None
Metadata = Annotated[
    dict[MetadataKey, MetadataValue],
    Field(max_length=METADATA_ENTRIES, json_schema_extra={"additionalProperties": False}),
]


def record_key(slot: int) -> str:
    """Where the record of a slot stands."""
    return f"log/{slot:020d}.json"


def table_key(sha256: str) -> str:
    """Where a tensor table stands."""
    return f"tables/{sha256}.json"


def file_key(sha256: str) -> str:
    """Where a carried file (config, tokenizer) stands."""
    return f"files/{sha256}"


class RecordBase(Sealed):
    """What every record has. ``time`` is milliseconds since 1970, for people; nothing may depend on it."""

    slot: Count
    parent: Sha256 | None
    ignorable: bool = False
    epoch: Count
    nonce: Hex32
    time: Count

    @model_validator(mode="after")
    def _record_rules(self) -> Self:
        if self.ignorable and self.kind in _KINDS:
            raise ValueError("a record of a known kind is not ignorable")
        if (self.slot == 0) != (self.parent is None):
            raise RuleError("DS051", "the record of slot 0, and no other, has no parent")
        return self


class BirthRecord(RecordBase):
    """Slot 0: the stream exists. ``stream`` is its random identity."""

    kind: Literal["birth"] = "birth"
    stream: Hex32


class EpochRecord(RecordBase):
    """A trainer incarnation begins and fences all earlier ones.

    ``resumes`` is the version whose weights the trainer holds, proved by digest; None: it proved none, and
    the first version of the epoch is an anchor.
    """

    kind: Literal["epoch"] = "epoch"
    resumes: Count | None
    writer: Label


class Certificate(Strict):
    """What writers without a copy of the published weights found (SPEC section "Finding what changed").

    ``uncertain`` of ``inverted`` elements had more than one possible old value; of ``blocks`` looked at,
    ``settled`` were explained by another choice than the likeliest, and ``unexplained`` sent whole.
    """

    inverted: Count
    uncertain: Count
    blocks: Count
    settled: Count
    unexplained: Count


def _is_none(value: object) -> bool:
    return value is None


def _never_null(schema: dict[str, object]) -> None:
    """An object without a certificate lacks the member; null would be another spelling of the same."""
    del schema["default"]
    schema.update(schema.pop("anyOf")[0])  # type: ignore[index]


OptionalCertificate = Annotated[Certificate | None, Field(exclude_if=_is_none, json_schema_extra=_never_null)]


class Statistics(Strict):
    """What the writer found: informational, but ``changed`` and ``bytes`` are checked by the validator.

    ``certificate`` is left out, and not null, where every writer had a copy to compare with.
    """

    elements: Count
    changed: Count
    bytes: Count
    detector: Label
    certificate: OptionalCertificate = None


class VersionRecord(RecordBase):
    """A record that commits a version: its manifest. ``digest`` is that of the version's weights."""

    version: Count
    table: Sha256
    digest: Hex16
    statistics: Statistics
    metadata: Metadata


class PackRef(Strict):
    """One pack of a delta; its key follows from the version and ``sha256``."""

    sha256: Sha256
    bytes: Annotated[int, Field(ge=1, le=PACK_BYTES)]
    index_sha256: Sha256
    rows: Annotated[int, Field(ge=1, le=ROWS_PER_PACK)]
    count: Count
    slabs: tuple[Slab, Slab]

    @model_validator(mode="after")
    def _index_fits(self) -> Self:
        if index_bytes(self.rows) > self.bytes:
            raise ValueError("the index is longer than the pack")
        if self.slabs[0] > self.slabs[1]:
            raise ValueError("the slab of the last row is below that of the first")
        return self


class DeltaRecord(VersionRecord):
    """A version stored as patches against the weights of version ``base``."""

    kind: Literal["delta"] = "delta"
    base: Count
    writers: Annotated[int, Field(ge=1, le=WRITERS)]
    packs: Annotated[tuple[PackRef, ...], Field(max_length=PACKS_PER_VERSION, fail_fast=True)]

    @model_validator(mode="after")
    def _base_is_older(self) -> Self:
        if self.base >= self.version:
            raise RuleError("DS060", "the base is not below the version")
        return self


class AnchorRef(Strict):
    """Where a version stored whole stands: ``anchors/<version>/<attempt>/``."""

    attempt: Hex32
    inventory_sha256: Sha256
    inventory_bytes: Annotated[int, Field(ge=1, le=INVENTORY_BYTES)]

    def prefix(self, version: int) -> str:
        """The key prefix of the anchor's objects, ending in a slash."""
        return f"anchors/{version:020d}/{self.attempt}/"


class FileRef(Strict):
    """A file carried beside the weights, such as ``config.json`` or a tokenizer."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}$")]
    bytes: Annotated[int, Field(ge=0, le=FILE_BYTES)]
    sha256: Sha256

    @model_validator(mode="after")
    def _stands_for_no_weights(self) -> Self:
        if self.name.lower().endswith((".safetensors", ".index.json")):
            raise ValueError(f"a carried file {self.name}, a name that is kept for weights")
        return self


class AnchorRecord(VersionRecord):
    """A version stored whole, as a Zarr v3 group."""

    kind: Literal["anchor"] = "anchor"
    anchor: AnchorRef
    files: Annotated[tuple[FileRef, ...], Field(max_length=FILE_COUNT, fail_fast=True)]

    @model_validator(mode="after")
    def _file_names_differ(self) -> Self:
        if len({file.name for file in self.files}) != len(self.files):
            raise ValueError("two carried files have one name")
        return self


class SkippedRecord(RecordBase):
    """A record of a kind that this release does not know but may skip: only the chain is checked."""

    kind: str


Record = BirthRecord | EpochRecord | DeltaRecord | AnchorRecord | SkippedRecord

_KINDS: dict[str, type[BirthRecord | EpochRecord | DeltaRecord | AnchorRecord]] = {
    "birth": BirthRecord,
    "epoch": EpochRecord,
    "delta": DeltaRecord,
    "anchor": AnchorRecord,
}

_NO_RECORDS = frozenset(
    {"table", "inventory", "call", "join", "claim", "attempt", "vote", "ending", "layout", "attestation"}
)
"""Kinds of this format that never stand in the log: such an object was put there by mistake."""


class _Notes(Strict):
    metadata: Metadata = Field(default_factory=dict)
    label: Label = ""


def check_metadata(metadata: Mapping[str, object]) -> dict[str, MetadataValue]:
    """User metadata as a record can hold it; ``InputError("bad_argument")`` says what does not fit.

    Values are text, integers, booleans or None: a float has more than one spelling, so it goes in as text.
    """
    for key, value in metadata.items():
        if value is not None and not isinstance(value, str | int):
            kind = type(value).__name__
            raise InputError("bad_argument", f"metadata {key!r:.80} is a {kind}: write it as text")
        if isinstance(value, int) and abs(value) > MAX_INTEGER:
            raise InputError(
                "bad_argument", f"metadata {key!r:.80} is beyond +-(2**53 - 1): write it as text"
            )
    try:
        return _Notes.model_validate({"metadata": dict(metadata)}).metadata
    except ValidationError as error:
        raise InputError("bad_argument", f"metadata does not fit a record: {first_problem(error)}") from None


def check_label(label: str) -> str:
    """A writer's label as an epoch record can hold it; ``InputError("bad_argument")`` if it cannot."""
    try:
        return _Notes(label=label).label
    except ValidationError as error:
        raise InputError("bad_argument", f"not a writer's label: {first_problem(error)}") from None


def parse_record(data: bytes, slot: int) -> Record:
    """The record stored in ``slot``: canonical form, seal, schema and slot number are checked.

    Raises ``CorruptError`` (``bad_json``, ``bad_hash``, ``bad_chain``, ``too_large``) or
    ``UnsupportedError`` (``newer_format``, ``unknown_kind``).
    """
    where = record_key(slot)
    if len(data) > RECORD_BYTES:
        message = f"{where} is larger than {RECORD_BYTES} bytes"
        raise CorruptError("too_large", message, where=where, rule="DS100")
    fields = parse_canonical(data, where)
    kind = fields.get("kind")
    record: Record
    if isinstance(kind, str) and kind in _NO_RECORDS:
        message = f"{where} holds an object of kind {kind}, which is no record"
        raise CorruptError("bad_json", message, where=where, rule="DS013")
    if isinstance(kind, str) and kind in _KINDS:
        record = _KINDS[kind].from_bytes(data, where)
    elif fields.get("ignorable") is True:
        record = _parse_skipped(fields, where)
    else:
        of = "without a kind" if kind is None else f"of kind {kind!r:.80}"
        raise UnsupportedError(
            "unknown_kind",
            f"{where} is a record {of}, which this release does not know: upgrade deltastore",
            where=where,
            rule="DS052",
        )
    if record.slot != slot:
        message = f"{where} says that it is of slot {record.slot}"
        raise CorruptError("bad_chain", message, where=where, rule="DS051")
    if isinstance(record, BirthRecord) != (slot == 0):
        message = f"{where} is a {record.kind} record; slot 0, and no other, is a birth"
        raise CorruptError("bad_chain", message, where=where, rule="DS050")
    if isinstance(record, BirthRecord) and record.epoch != 0:
        message = f"{where} is of epoch {record.epoch}, where none has begun"
        raise CorruptError("bad_chain", message, where=where, rule="DS053")
    return record


def _parse_skipped(fields: dict[str, object], where: str) -> SkippedRecord:
    known = {name: fields[name] for name in SkippedRecord.model_fields if name in fields}
    try:
        return SkippedRecord.model_validate(known)
    except ValidationError as error:
        raise breach(error, where) from None
