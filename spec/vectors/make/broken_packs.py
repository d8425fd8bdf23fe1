"""Stores whose packs are broken, all hashes being right: SPEC sections 9, 10 and 12."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from deltastore.format.dtypes import DTYPES
from spec.vectors.make.breaking import Broken
from spec.vectors.make.by_hand import Row, Run, moved, pack_of, patch_of, words
from spec.vectors.make.objects import (
    Objects,
    change_pack,
    change_record,
    pack_key,
    record_key,
    record_of,
)

Fields = dict[str, Any]
Harm = Callable[[Objects], str]

_F32 = DTYPES["F32"]
_N = 4
"""Elements of chunk 1 of array 1, which version 5 patches: two members of two rows of one column."""

_OLD = 0x00000001
"""The bits of element 0 of that chunk in version 0, on which version 5 stands."""


def _changed(change: Callable[[bytes], bytes], version: int = 5) -> Harm:
    def harm(objects: Objects) -> str:
        change_pack(objects, version, 0, change)
        return pack_key(version, record_of(objects, version)["packs"][0]["sha256"])

    return harm


def _of(*rows: Row, version: int = 5) -> Harm:
    """The pack of version 5 has these rows instead."""

    def harm(objects: Objects) -> str:
        change_pack(objects, 5, 0, lambda _: pack_of(*rows, version=version))
        return pack_key(5, record_of(objects, 5)["packs"][0]["sha256"])

    return harm


def _entry(**members: Any) -> Harm:
    """The manifest says something else of the pack of version 5."""

    def harm(objects: Objects) -> str:
        def change(fields: Fields) -> None:
            fields["packs"][0].update(members)

        change_record(objects, record_of(objects, 5)["slot"], change)
        return pack_key(5, record_of(objects, 5)["packs"][0]["sha256"])

    return harm


def _row(patch: bytes, **members: Any) -> Row:
    return Row(1, 1, patch, 1).but(**members)


def _poked(at: int, value: bytes) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + value + data[at + len(value) :]


def packs() -> Iterator[Broken]:
    """All of them."""
    yield from _indexes()
    yield from _patches()
    yield from _entries()
    yield from _digests()


def _indexes() -> Iterator[Broken]:
    good = _row(patch_of(_N, _F32, Run(32, {0: 2})))
    second = Row(1, 2, patch_of(_N, _F32, Run(32, {0: 2})), 1)
    cases: dict[str, tuple[str, str, Harm]] = {
        "a pack of another magic": ("bad_index", "DS040", _changed(_poked(0, b"\x92"))),
        "a pack of a newer format": ("newer_format", "DS040", _changed(_poked(8, b"\2"))),
        "a pack with a flag": ("bad_index", "DS040", _changed(_poked(10, b"\1"))),
        "a row of an array that is not there": ("bad_index", "DS041", _of(good.but(array=5))),
        "a row of a chunk that is not there": ("bad_index", "DS041", _of(good.but(chunk=4))),
        "a row of an unknown encoding": ("bad_index", "DS041", _of(good.but(encoding=2))),
        "rows that do not ascend": ("bad_index", "DS042", _of(second, good)),
        "a chunk twice in a pack": ("bad_index", "DS042", _of(good, good)),
        "a raw row of another length": (
            "bad_index",
            "DS043",
            _of(_row(bytes(12), encoding=1, count=_N)),
        ),
        "a patch with another hash": ("bad_hash", "DS044", _of(good.but(check=bytes(16)))),
        "a patch that writes more than its row says": (
            "bad_patch",
            "DS044",
            _of(_row(patch_of(_N, _F32, Run(32, {0: 2, 1: 2})))),
        ),
    }
    for name, (code, check, harm) in cases.items():
        yield Broken(name, code, check, "content", harm, 5)


def _patches() -> Iterator[Broken]:
    two = patch_of(_N, _F32, Run(2, {0: 2}), Run(32, {0: 2}))
    cases: dict[str, tuple[str, bytes, int]] = {
        "a patch with a bit in its padding": ("DS030", words(1, 2, 1, 0b1, 1 << 2), 1),
        "a patch of a width that is none": ("DS031", words(1, 3, 1, 0b1, 1), 1),
        "a patch with fewer positions than it says": ("DS032", words(1, 2 | 19 << 8, 1, 2**19 - 1, 1, 1), 1),
        "a patch with an element twice": ("DS033", two, 2),
        "a patch with bytes behind its last run": ("DS034", words(1, 2, 1, 0b1, 1, 0), 1),
    }
    for name, (check, patch, count) in cases.items():
        yield Broken(name, "bad_patch", check, "content", _of(_row(patch, count=count)), 5)


def _twice(objects: Objects) -> str:
    def change(fields: Fields) -> None:
        fields["packs"] *= 2
        fields["statistics"]["bytes"] *= 2

    slot = record_of(objects, 5)["slot"]
    change_record(objects, slot, change)
    return record_key(slot)


def _of_another_version(objects: Objects) -> str:
    """The pack of version 9 in the place of that of version 5."""
    other = record_of(objects, 9)["packs"][1]
    data = objects[pack_key(9, other["sha256"])]
    change_pack(objects, 5, 0, lambda _: data)
    return pack_key(5, other["sha256"])


def _entries() -> Iterator[Broken]:
    content = "content"
    yield Broken("an index of another hash", "bad_hash", "DS061", content, _entry(index_sha256="0" * 64), 5)
    yield Broken("a count that is not the rows'", "bad_index", "DS061", content, _entry(count=2), 5)
    yield Broken("slabs that are not the rows'", "bad_index", "DS061", content, _entry(slabs=[0, 1]), 5)
    yield Broken("a pack of another version", "bad_index", "DS061", content, _of_another_version, 5)
    yield Broken("a pack twice", "bad_patch", "DS045", content, _twice, 5)


def _unfit(objects: Objects) -> str:
    """A narrow run that says neither that the element of the base stays nor where it goes."""
    wrong = patch_of(_N, _F32, Run(2, {0: moved(_OLD, 2, _F32)}))
    change_pack(objects, 5, 0, lambda _: pack_of(_row(wrong), version=5))
    return pack_key(5, record_of(objects, 5)["packs"][0]["sha256"])


def _digest(version: int) -> Harm:
    def harm(objects: Objects) -> str:
        slot = record_of(objects, version)["slot"]
        change_record(objects, slot, lambda fields: fields.update(digest="0123456789abcdef"))
        return record_key(slot)

    return harm


def _difference(objects: Objects) -> str:
    """A row that says another digest difference, and a manifest that follows it."""
    record = record_of(objects, 5)

    def change(data: bytes) -> bytes:
        said = int.from_bytes(data[84:92], "little")
        return data[:84] + ((said + 1) % 2**64).to_bytes(8, "little") + data[92:]

    change_pack(objects, 5, 0, change)
    digest = f"{(int(record['digest'], 16) + 1) % 2**64:016x}"
    change_record(objects, record["slot"], lambda fields: fields.update(digest=digest))
    return pack_key(5, record_of(objects, 5)["packs"][0]["sha256"])


def _other_bits(objects: Objects) -> str:
    """A patch that writes other bits than its row and the manifest say."""

    def change(data: bytes) -> bytes:
        row = data[64:108]
        patch = patch_of(_N, _F32, Run(32, {0: 0x7FA00003}))
        difference = int.from_bytes(row[20:28], "little")
        return pack_of(_row(patch, difference=difference), version=5)

    change_pack(objects, 5, 0, change)
    return pack_key(5, record_of(objects, 5)["packs"][0]["sha256"])


def _digests() -> Iterator[Broken]:
    yield Broken("a patch that does not fit its base", "bad_patch", "DS036", "deep", _unfit_with_digest, 5)
    yield Broken("a difference that is not the patch's", "bad_digest", "DS046", "deep", _difference, 5)
    yield Broken("bits that are not those of the version", "bad_digest", "DS046", "deep", _other_bits, 5)
    yield Broken("a digest that does not follow", "bad_digest", "DS062", "content", _digest(5), 5)
    yield Broken(
        "a digest that does not follow from no change", "bad_digest", "DS062", "content", _digest(2), 2
    )


def _unfit_with_digest(objects: Objects) -> str:
    """The same, with a digest that follows from the row."""
    _unfit(objects)
    record, base = record_of(objects, 5), record_of(objects, 0)
    change_record(objects, record["slot"], lambda fields: fields.update(digest=base["digest"]))
    return pack_key(5, record_of(objects, 5)["packs"][0]["sha256"])
