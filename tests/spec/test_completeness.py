"""Nothing is left out: every requirement, code, element type, width and edge has its vectors."""

from __future__ import annotations

import json
import re
import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deltastore.errors import CODES
from deltastore.format.dtypes import DTYPES
from deltastore.validate.checks import CHECKS, Conduct, Level
from spec import decoder
from spec.conformance.stores import STREAMS
from spec.conformance.vectors import FILES, bits_of, read

Vector = dict[str, Any]
SPEC = (Path(__file__).parents[2] / "SPEC.md").read_text(encoding="utf-8")
WIDTHS = (2, 4, 8, 16, 32, 64)


def refused() -> Iterator[Vector]:
    """Every vector and every store that is refused."""
    for file in FILES:
        content = read(file)
        yield from content.get("err", ()) if isinstance(content, dict) else ()
    yield from read("broken.json")


def test_every_check_that_stored_bytes_can_break_is_broken() -> None:
    judged = {check.id for check in CHECKS.values() if isinstance(check.judged, Level)}
    broken = {row["check"] for row in refused()}
    assert len(judged) > 35
    assert judged - broken == set()


def test_every_check_of_a_level_is_broken_in_a_store() -> None:
    """Not only in single objects: a validator is to find it, at the level that it says."""
    stores = defaultdict(set)
    for row in read("broken.json"):
        stores[row["check"]].add(Level[row["level"].upper()])
    for check in CHECKS.values():
        if isinstance(check.judged, Level):
            assert check.judged in stores[check.id], check.id


def test_other_checks_are_named_only_where_they_are_judged() -> None:
    exchanged = {row["check"] for row in refused()} - {None}
    exchanged -= {check.id for check in CHECKS.values() if isinstance(check.judged, Level)}
    assert exchanged == {"DS110", "DS111"}
    assert all(CHECKS[name].judged == Conduct.EXCHANGE for name in exchanged)


def test_every_code_for_bad_bytes_is_met() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", SPEC, re.MULTILINE)
    wanted = {code for code, status in rows if status in ("12", "13")}
    assert len(wanted) == 12
    assert wanted | {"bad_key", "bad_layout"} == {row["code"] for row in refused()}
    assert wanted <= set(CODES)


def test_names_of_vectors_are_their_own() -> None:
    for file in FILES:
        content = read(file)
        for rows in content.values() if isinstance(content, dict) else ():
            names = [row["name"] for row in rows]
            assert len(set(names)) == len(names), file
    names = [row["name"] for row in read("broken.json")]
    assert len(set(names)) == len(names)


# ---- edges of patches --------------------------------------------------------------------------------------


def runs(row: Vector) -> list[tuple[int, int, int, int]]:
    """(width, low bits, reserved, count) of every run of a patch."""
    patch = bytes.fromhex(row["patch"])
    count = int.from_bytes(patch[:4], "little") if row["encoding"] == 0 else 0
    return [struct.unpack("<BBHI", patch[at : at + 8]) for at in range(4, 4 + 8 * count, 8)]


def good_patches() -> list[Vector]:
    """Those of both files."""
    found: list[Vector] = [*read("patch.json")["ok"], *read("large.json")["ok"]]
    return found


def test_every_type_in_every_encoding_and_width() -> None:
    raw = {row["dtype"] for row in good_patches() if row["encoding"] == 1}
    narrow = {(row["dtype"], run[0]) for row in good_patches() for run in runs(row)}
    assert raw == set(DTYPES)
    assert narrow == {(name, width) for name, one in DTYPES.items() for width in WIDTHS if width <= one.bits}


def test_every_number_of_runs_and_of_low_bits() -> None:
    assert {len(runs(row)) for row in good_patches()} >= {0, 1, 2, 3, 6}
    assert {run[1] for row in good_patches() for run in runs(row)} == set(range(20))


def test_chunks_and_counts_of_every_size() -> None:
    rows = [row for row in good_patches() if row["encoding"] == 0]
    assert {row["elements"] for row in rows} >= {1, 2**20}
    counts = {(row["elements"], row["count"]) for row in rows}
    assert any(count == elements > 1 for elements, count in counts)
    assert any(count == 1 < elements for elements, count in counts)
    sizes = [section_bits(row) for row in rows]
    assert any(bits % 32 == 0 for each in sizes for bits in each)
    assert any(bits % 32 == 1 for each in sizes for bits in each)
    assert any(bits % 32 == 31 for each in sizes for bits in each)


def section_bits(row: Vector) -> list[int]:
    """Bits of the low, high and residue sections of every run, those of no bits left out."""
    found = []
    for width, low, _, count in runs(row):
        found += [count * low, count + ((row["elements"] - 1) >> low), count * width]
    return [bits for bits in found if bits]


def changes(dtype: str) -> set[tuple[int, int]]:
    """(old bits, new bits) of every element that a good patch of a type changes."""
    found: set[tuple[int, int]] = set()
    for row in read("patch.json")["ok"]:
        if row["dtype"] == dtype:
            width = 2 * DTYPES[dtype].itemsize
            old, new = (bytes.fromhex(row[name]) for name in ("base", "result"))
            for at in range(0, len(old), width // 2):
                pair = (old[at : at + width // 2], new[at : at + width // 2])
                found.add((int.from_bytes(pair[0], "little"), int.from_bytes(pair[1], "little")))
    return found


def test_values_that_arithmetic_would_spoil() -> None:
    pairs = changes("BF16")
    assert {(0x0000, 0x8000), (0x8000, 0x0000)} <= pairs  # both zeros
    assert {(0x7FFF, 0xFFFF), (0xFFFF, 0x7FFF)} <= pairs  # the ends of ordered-integer space
    assert {(0x0001, 0x8001), (0x8001, 0x0001)} <= pairs  # subnormals of both signs
    assert {new for _, new in pairs} >= {0x7FC0, 0x7F81, 0xFFC1, 0xFF81, 0x7F80, 0xFF80}  # NaNs, infinities
    assert {(255, 0), (0, 255)} <= changes("U8")
    assert {(0x7F, 0x80), (0x80, 0x7F)} <= changes("I8")


def test_the_first_and_the_last_element() -> None:
    ends = set()
    for row in good_patches():
        old, new = (bits_of(row[name], row["elements"]) for name in ("base", "result"))
        size = 2 * DTYPES[row["dtype"]].itemsize
        ends.add((old[:size] != new[:size], old[-size:] != new[-size:], row["elements"] == 2**20))
    assert ends >= {(True, False, False), (False, True, False), (True, True, True)}


# ---- tables and streams ------------------------------------------------------------------------------------


def test_tables_of_every_type_and_rule() -> None:
    arrays = [
        array
        for row in read("table.json")["ok"]
        for array in decoder.decode_table(row["text"].encode("latin-1")).arrays
    ]
    assert {array.dtype for array in arrays} == set(DTYPES)
    assert {array.slab["by"] for array in arrays} == {"common", "axis", "member"}
    assert {len(array.shape) for array in arrays} >= {0, 1, 2, 16}
    assert {len(array.indexes[0]) for array in arrays} >= {0, 1, 2, 8}
    assert any(0 in array.shape for array in arrays)
    assert any(len(array.members) > 1 for array in arrays)
    assert max(array.slabs for array in arrays) == 4096


def records() -> dict[str, list[Vector]]:
    """The records of every stream, in slot order."""
    return {
        path.name: [json.loads(one.read_bytes()) for one in sorted((path / "log").iterdir())]
        for path in sorted(STREAMS.iterdir())
        if path.is_dir()
    }


def test_streams_of_every_kind() -> None:
    every = [record for log in records().values() for record in log]
    assert {record["kind"] for record in every} > {"birth", "epoch", "anchor", "delta"}
    assert any(record["ignorable"] for record in every)
    deltas = [record for record in every if record["kind"] == "delta"]
    assert {len(record["packs"]) for record in deltas} >= {0, 1, 2}
    assert {record["writers"] for record in deltas} >= {1, 2}
    assert any("certificate" in record["statistics"] for record in deltas)
    assert any(record["files"] for record in every if record["kind"] == "anchor")
    assert max(record["version"] for record in deltas) == 2**53 - 1
    epochs = [record["resumes"] for record in every if record["kind"] == "epoch"]
    assert None in epochs
    assert len(set(epochs)) > 3


def test_streams_whose_epochs_go_back() -> None:
    bases = [record["base"] for record in records()["v1-epochs"] if record["kind"] == "delta"]
    assert len(set(bases)) < len(bases)  # a version with two deltas on it


def test_anchors_with_sums_and_without() -> None:
    held = {
        path.parent.parent.parent.parent.name: (path.parent / "sums").exists()
        for path in sorted(STREAMS.rglob("inventory.json"))
    }
    assert held["v1-by-0.1.0"] is False
    assert held["v1-dtypes"] is True
    assert {(path.parent / "sums").exists() for path in (STREAMS / "v1-by-hand").rglob("inventory.json")} == {
        False,
        True,
    }


def test_two_writers_patch_one_chunk() -> None:
    found = 0
    for log in (STREAMS / "v1-writers" / "log", STREAMS / "v1-by-hand" / "log"):
        for path in sorted(log.iterdir()):
            record = json.loads(path.read_bytes())
            chunks = [
                chunk for pack in record.get("packs", ()) for chunk in chunks_of(log.parent, record, pack)
            ]
            found += len(set(chunks)) < len(chunks)
    assert found >= 2


def chunks_of(root: Path, record: Vector, pack: Vector) -> list[tuple[int, int]]:
    """(array, chunk) of every row of a pack."""
    data = (root / f"packs/{record['version']:020}/{pack['sha256']}.pack").read_bytes()
    return [struct.unpack_from("<II", data, 64 + 44 * row) for row in range(pack["rows"])]
