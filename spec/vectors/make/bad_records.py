"""Log records that break one rule each: SPEC sections 5, 11 and 12."""

from __future__ import annotations

import json
from typing import Any

from spec.vectors.make.sample_records import (
    COMMON,
    HASH,
    anchor,
    birth,
    delta,
    epoch,
    put,
    sealed,
    text_of,
    without,
)

Fields = dict[str, Any]
Cases = dict[str, tuple[str, str, str]]
"""By name: stored bytes as Latin-1, code, check."""


def _syntax() -> Cases:
    good = delta()
    plain = text_of(good)
    form: Cases = {
        "empty": ("", "bad_json", "DS010"),
        "not JSON": ("nonsense", "bad_json", "DS010"),
        "a list": ("[]", "bad_json", "DS010"),
        "text": ('"delta"', "bad_json", "DS010"),
        "null": ("null", "bad_json", "DS010"),
        "not UTF-8": ("\xff" + plain, "bad_json", "DS010"),
        "a byte order mark": ("\xef\xbb\xbf" + plain, "bad_json", "DS010"),
        "an overlong encoding": (plain.replace("snapshot", "\xc0\xaf"), "bad_json", "DS010"),
        "a surrogate in UTF-8": (plain.replace("snapshot", "\xed\xa0\x80"), "bad_json", "DS010"),
        "NaN": (plain.replace('"changed":3', '"changed":NaN'), "bad_json", "DS010"),
        "Infinity": (plain.replace('"changed":3', '"changed":Infinity'), "bad_json", "DS010"),
        "a float": (plain.replace('"changed":3', '"changed":3.0'), "bad_json", "DS010"),
        "an exponent": (plain.replace('"changed":3', '"changed":3e0'), "bad_json", "DS010"),
        "an integer beyond 2**53 - 1": (
            plain.replace('"changed":3', '"changed":9007199254740992'),
            "bad_json",
            "DS010",
        ),
        "an integer below 1 - 2**53": (
            plain.replace('"step":12', '"step":-9007199254740992'),
            "bad_json",
            "DS010",
        ),
        "an integer of 5000 digits": (
            plain.replace('"step":12', '"step":' + "9" * 5000),
            "bad_json",
            "DS010",
        ),
        "a leading zero": (plain.replace('"step":12', '"step":012'), "bad_json", "DS010"),
        "minus zero": (plain.replace('"step":12', '"step":-0'), "bad_json", "DS010"),
        "nested too deep": ("[" * 20_000 + "]" * 20_000, "bad_json", "DS010"),
        "nested 17 deep": (plain.replace('"step":12', '"step":' + "[" * 15 + "]" * 15), "bad_json", "DS010"),
        "keys out of order": (
            "{" + '"slot":3,' + plain[1:].replace('"slot":3,', ""),
            "bad_json",
            "DS010",
        ),
        "a key twice": ('{"base":0,' + plain[1:], "bad_json", "DS010"),
        "a key twice with two values": ('{"base":1,' + plain[1:], "bad_json", "DS010"),
        "a key that is not ASCII": (plain.replace('"step"', '"st\xc3\xa9p"'), "bad_json", "DS010"),
        "an escaped letter": (plain.replace('"best"', '"\\u0062est"'), "bad_json", "DS010"),
        "an escape in upper case": (plain.replace("\\u0001", "\\u001F"), "bad_json", "DS010"),
        "an escaped slash": (plain.replace('"snapshot"', '"a\\/b"'), "bad_json", "DS010"),
        "a tab as \\u0009": (plain.replace("\\t", "\\u0009"), "bad_json", "DS010"),
        "an escaped delete character": (plain.replace("\x7f", "\\u007f"), "bad_json", "DS010"),
        "a bare control character": (plain.replace("\\u0001", "\x01"), "bad_json", "DS010"),
        "a lone surrogate": (plain.replace('"snapshot"', '"\\ud800"'), "bad_json", "DS010"),
        "a surrogate pair as escapes": (plain.replace('"snapshot"', '"\\ud83d\\ude00"'), "bad_json", "DS010"),
        "a space": (plain.replace(":", ": ", 1), "bad_json", "DS010"),
        "a trailing space": (plain + " ", "bad_json", "DS010"),
        "a trailing comma": (plain[:-1] + ",}", "bad_json", "DS010"),
        "a second object": (plain + "{}", "bad_json", "DS010"),
        "a zero byte behind": (plain + "\0", "bad_json", "DS010"),
        "cut short": (plain[:-1], "bad_json", "DS010"),
    }
    return form | {
        "a changed digit": (plain.replace('"changed":3', '"changed":4'), "bad_hash", "DS011"),
        "no hash": (plain.replace(f'"sha256":"{good.sha256}",', ""), "bad_hash", "DS011"),
        "a hash that is a number": (plain.replace(f'"{good.sha256}"', "0"), "bad_hash", "DS011"),
        "its hash in upper case": (plain.replace(good.sha256, good.sha256.upper()), "bad_hash", "DS011"),
        "a newer format": (put(good, "format", 2), "newer_format", "DS012"),
        "a much newer format": (put(good, "format", 2**53 - 1), "newer_format", "DS012"),
        "a newer format, in no canonical form": (
            put(good, "format", 2).replace(":", ": ", 1),
            "newer_format",
            "DS012",
        ),
        "a newer format with a wrong hash": (
            plain.replace('"format":1', '"format":2'),
            "newer_format",
            "DS012",
        ),
        "NaN in a newer format": (
            put(good, "format", 2).replace('"changed":3', '"changed":NaN'),
            "bad_json",
            "DS010",
        ),
        "format as text": (put(good, "format", "1"), "bad_json", "DS013"),
        "format 0": (put(good, "format", 0), "bad_json", "DS013"),
        "format true": (put(good, "format", True), "bad_json", "DS013"),
        "no format": (without(good, "format"), "bad_json", "DS013"),
    }


def _kinds() -> Cases:
    good = delta()
    skipped = {**COMMON, "format": 1, "kind": "label", "slot": 3, "ignorable": True}
    return {
        "an unknown kind": (put(good, "kind", "label"), "unknown_kind", "DS052"),
        "a kind in capitals": (put(good, "kind", "Delta"), "unknown_kind", "DS052"),
        "a kind that is a number": (put(good, "kind", 7), "unknown_kind", "DS052"),
        "no kind": (without(good, "kind"), "unknown_kind", "DS052"),
        "an unknown kind, ignorable by a number": (
            sealed({**skipped, "ignorable": 1}),
            "unknown_kind",
            "DS052",
        ),
        "the kind of a table": (put(good, "kind", "table"), "bad_json", "DS013"),
        "the kind of a vote, ignorable": (sealed({**skipped, "kind": "vote"}), "bad_json", "DS013"),
        "no kind, but ignorable": (
            sealed({name: value for name, value in skipped.items() if name != "kind"}),
            "bad_json",
            "DS013",
        ),
        "an ignorable record without a nonce": (
            sealed({name: value for name, value in skipped.items() if name != "nonce"}),
            "bad_json",
            "DS013",
        ),
        "an ignorable record with a negative time": (sealed({**skipped, "time": -1}), "bad_json", "DS013"),
        "an ignorable record without a parent": (sealed({**skipped, "parent": None}), "bad_json", "DS051"),
        "an ignorable record of another slot": (sealed({**skipped, "slot": 4}), "bad_chain", "DS051"),
        "a delta that is ignorable": (put(good, "ignorable", True), "bad_json", "DS013"),
        "another slot": (put(good, "slot", 4), "bad_chain", "DS051"),
        "a later slot without a parent": (put(good, "parent", None), "bad_json", "DS051"),
        "a base that is not below the version": (put(good, "base", 1), "bad_json", "DS060"),
        "a base above the version": (put(good, "base", 2), "bad_json", "DS060"),
    }


def _members() -> Cases:
    good = delta()
    cases = {
        "a member too many": put(good, "signature", "x"),
        "a member missing": without(good, "writers"),
        "a member of statistics missing": without(good, "statistics", "changed"),
        "a member of statistics too many": put(good, "statistics", "speed", 1),
        "a member of a pack missing": without(good, "packs", 0, "rows"),
        "a member of a pack too many": put(good, "packs", 0, "key", "x"),
        "an integer as text": put(good, "version", "1"),
        "true for an integer": put(good, "version", True),
        "a negative version": put(good, "version", -1),
        "a negative epoch": put(good, "epoch", -1),
        "a negative time": put(good, "time", -1),
        "ignorable as a number": put(good, "ignorable", 0),
        "a nonce of 31 digits": put(good, "nonce", "0" * 31),
        "a parent of 63 digits": put(good, "parent", "0" * 63),
        "a hash in upper case": put(good, "table", HASH.upper()),
        "a hash with a newline": put(good, "table", HASH[:-1] + "\n"),
        "a hash and a newline": put(good, "table", HASH + "\n"),
        "a digest of 15 digits": put(good, "digest", "0" * 15),
        "a digest that is a number": put(good, "digest", 255),
        "no writers": put(good, "writers", 0),
        "65537 writers": put(good, "writers", 65537),
        "a base that is null": put(good, "base", None),
        "statistics that are null": put(good, "statistics", None),
        "a detector of 201 characters": put(good, "statistics", "detector", "x" * 201),
        "a negative count of changes": put(good, "statistics", "changed", -1),
        "packs that are an object": put(good, "packs", {}),
        "a pack without rows": put(good, "packs", 0, "rows", 0),
        "a pack without bytes": put(good, "packs", 0, "bytes", 0),
        "a pack above the limit": put(good, "packs", 0, "bytes", (1 << 30) + 1),
        "rows of a pack above the limit": put(
            good,
            "packs",
            0,
            {**json.loads(text_of(good))["packs"][0], "rows": (1 << 22) + 1, "bytes": 1 << 30},
        ),
        "slabs of a pack backwards": put(good, "packs", 0, "slabs", [3, 1]),
        "one slab of a pack": put(good, "packs", 0, "slabs", [0]),
        "three slabs of a pack": put(good, "packs", 0, "slabs", [0, 0, 0]),
        "a slab above the limit": put(good, "packs", 0, "slabs", [0, 4097]),
        "an index longer than its pack": put(good, "packs", 0, "rows", 4),
        "a pack hash that climbs": put(good, "packs", 0, "sha256", "../" * 21 + "x"),
        "a certificate that is null": put(good, "statistics", "certificate", None),
        "an empty certificate": put(good, "statistics", "certificate", {}),
        "metadata that is null": put(good, "metadata", None),
        "metadata that is a list": put(good, "metadata", "step", [1]),
        "metadata that is an object": put(good, "metadata", "step", {}),
        "a metadata key with a space": put(good, "metadata", "a b", 1),
        "an empty metadata key": put(good, "metadata", "", 1),
        "a metadata key of 65 characters": put(good, "metadata", "k" * 65, 1),
        "metadata text too long": put(good, "metadata", "note", "x" * 1025),
        "65 keys of metadata": put(good, "metadata", {f"k{number}": number for number in range(65)}),
    }
    return {name: (text, "bad_json", "DS013") for name, text in cases.items()}


def _of_other_slots() -> dict[str, tuple[int, str, str, str]]:
    first, second, third = birth(), epoch(), anchor()
    file = json.loads(text_of(third))["files"][0]
    many = [{**file, "name": f"{number}"} for number in range(257)]
    cases = {
        "a stream of 31 digits": (0, put(first, "stream", "a" * 31)),
        "a birth without its stream": (0, without(first, "stream")),
        "a writer of 201 characters": (1, put(second, "writer", "x" * 201)),
        "resumes as text": (1, put(second, "resumes", "7")),
        "a negative resumed version": (1, put(second, "resumes", -1)),
        "an epoch with a version": (1, put(second, "version", 7)),
        "an attempt that climbs": (2, put(third, "anchor", "attempt", "../" * 10 + "xx")),
        "an inventory above the limit": (2, put(third, "anchor", "inventory_bytes", (64 << 20) + 1)),
        "an inventory without bytes": (2, put(third, "anchor", "inventory_bytes", 0)),
        "an anchor with a base": (2, put(third, "base", 0)),
        "a file name that climbs": (2, put(third, "files", 0, "name", "../config.json")),
        "a file name with a slash": (2, put(third, "files", 0, "name", "a/config.json")),
        "a hidden file": (2, put(third, "files", 0, "name", ".config.json")),
        "an empty file name": (2, put(third, "files", 0, "name", "")),
        "a file name of 201 characters": (2, put(third, "files", 0, "name", "f" * 201)),
        "a file name with a newline": (2, put(third, "files", 0, "name", "config.json\n")),
        "a file name that stands for weights": (2, put(third, "files", 0, "name", "model.SafeTensors")),
        "a file name that stands for an index": (2, put(third, "files", 0, "name", "x.index.json")),
        "a file name twice": (2, put(third, "files", [file] * 2)),
        "a file above the limit": (2, put(third, "files", 0, "bytes", (256 << 20) + 1)),
    }
    found = {name: (slot, text, "bad_json", "DS013") for name, (slot, text) in cases.items()}
    return found | {
        "257 carried files": (2, put(third, "files", many), "bad_json", "DS100"),
        "slot 0 with a parent": (0, put(first, "parent", HASH), "bad_json", "DS051"),
        "a birth in a later slot": (3, put(first, "slot", 3), "bad_json", "DS051"),
        "a birth in a later slot, with a parent": (
            3,
            sealed({**json.loads(text_of(first)), "slot": 3, "parent": HASH}),
            "bad_chain",
            "DS050",
        ),
        "a birth of epoch 1": (0, put(first, "epoch", 1), "bad_chain", "DS053"),
        "an epoch record in slot 0": (
            0,
            sealed({**json.loads(text_of(second)), "slot": 0, "parent": None}),
            "bad_chain",
            "DS050",
        ),
    }


def bad_records() -> list[Fields]:
    """Records of slot 3, and some of the slots before it."""
    every = {name: (3, *case) for name, case in (_syntax() | _kinds() | _members()).items()}
    return [
        {"name": name, "slot": slot, "text": text, "code": code, "check": check}
        for name, (slot, text, code, check) in (every | _of_other_slots()).items()
    ]
