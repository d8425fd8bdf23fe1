"""A reader of the deltastore format, written from SPEC.md alone, one file for each of its sections.

It is made to be read beside the specification, not to be fast: whole objects in memory, a local directory as
the store. It shares no code with the package, so that the two can be held against each other.

    python -m spec.decoder STREAM_DIRECTORY [VERSION]

prints the digest of a version (without one: of the tip) and the SHA-256 of the bits of every tensor.
"""

from __future__ import annotations

from spec.decoder.anchor import checked
from spec.decoder.checking import check_stream
from spec.decoder.digest import T, digest, mix, seed
from spec.decoder.elements import U64, WIDTHS, ordered
from spec.decoder.exchange import decode_word
from spec.decoder.json_objects import canonical, decode_json
from spec.decoder.log import read_log
from spec.decoder.pack import Pack, Row, decode_pack
from spec.decoder.patch import Run, apply_patch, decode_patch
from spec.decoder.reading import read_version
from spec.decoder.records import COMMON, decode_record
from spec.decoder.refusal import SpecError
from spec.decoder.table import Array, Table, boxes, decode_table, join_name, split_name, stored

__all__ = [
    "COMMON",
    "U64",
    "WIDTHS",
    "Array",
    "Pack",
    "Row",
    "Run",
    "SpecError",
    "T",
    "Table",
    "apply_patch",
    "boxes",
    "canonical",
    "check_stream",
    "checked",
    "decode_json",
    "decode_pack",
    "decode_patch",
    "decode_record",
    "decode_table",
    "decode_word",
    "digest",
    "join_name",
    "mix",
    "ordered",
    "read_log",
    "read_version",
    "seed",
    "split_name",
    "stored",
]
