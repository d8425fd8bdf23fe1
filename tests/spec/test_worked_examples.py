"""Appendix A of SPEC.md, block by block: what stands in the text, worked out anew and decoded twice."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import numpy as np
import pytest

from deltastore.errors import InputError
from deltastore.format.canonical import canonical_bytes, seal
from deltastore.format.digest import Digester, digest_text
from deltastore.format.dtypes import DTYPES
from deltastore.format.names import box_members, join_name, split_name
from deltastore.format.pack import HEADER_BYTES, ROW
from deltastore.format.seeds import tensor_seed
from deltastore.format.table import Array, TensorSpec, TensorTable
from deltastore.kernels.reference.digest import mix, position_weights
from deltastore.kernels.reference.elias_fano import best_low_bits, positions_bytes
from deltastore.kernels.reference.ordered import ordered
from deltastore.layout.cutting import plain_table
from deltastore.layout.layout_object import LayoutObject
from spec import decoder, examples, figures
from spec.decoder.layout import decode_layout

TEXT = examples.SPEC.read_text(encoding="utf-8")
BLOCKS = examples.blocks_of(TEXT)
BF16 = DTYPES["BF16"]

Bits = np.ndarray[Any, Any]


@cache
def worked_out() -> dict[str, str]:
    return examples.blocks()


@pytest.mark.parametrize("name", sorted(BLOCKS))
def test_a_block_is_as_worked_out(name: str) -> None:
    assert BLOCKS[name] == {**BLOCKS, **worked_out()}[name], "run python -m spec.examples"


def test_every_example_stands_in_the_text() -> None:
    assert sorted(set(worked_out()) - set(BLOCKS)) == []


def prose(section: str) -> str:
    """The text of a section of the appendix without its blocks, as one line."""
    found = re.search(rf"^### {re.escape(section)}\n.*?(?=^##)", TEXT, re.DOTALL | re.MULTILINE)
    assert found is not None
    return " ".join(re.sub(r"^```.*?^```$", "", found[0], flags=re.DOTALL | re.MULTILINE).split())


def octets(dump: str, *, offsets: bool = False) -> bytes:
    """The bytes of a dump; with offsets at the starts of lines, which are checked."""
    data = b""
    for line in dump.splitlines():
        found = re.match(r"( *\d+  )?((?:[0-9A-F]{2} ?)*)", line)
        assert found is not None
        assert bool(found[1]) == offsets
        assert not offsets or int(found[1]) == len(data)
        data += bytes.fromhex(found[2])
    return data


# ---- A.1 to A.4 --------------------------------------------------------------------------------------------


def test_names() -> None:
    for line in BLOCKS["names"].splitlines():
        name, pattern, indexes = re.split(r"  +", line)
        found = tuple(int(one) for one in indexes.strip("()").split(",") if one)
        assert split_name(name) == decoder.split_name(name) == (pattern, found)
        assert join_name(pattern, found) == decoder.join_name(pattern, found) == name


@pytest.mark.spec("DS020")
def test_members() -> None:
    for line in BLOCKS["members"].splitlines():
        tuples, boxes = re.split(r"  +", line)
        given = [tuple(map(int, filter(None, one.strip("()").split(",")))) for one in tuples.split(" ")]
        assert decoder.boxes(given) == json.loads(boxes)
        assert [[list(axis) for axis in box] for box in box_members(given)] == json.loads(boxes)


@pytest.mark.spec("DS010")
def test_canonical_values() -> None:
    for line in BLOCKS["canonical"].splitlines():
        assert canonical_bytes(json.loads(line)).decode() == line
        assert decoder.canonical(json.loads(line)).decode() == line
    for letters in ("\x7f", "\u2028", "é", "😀", "/"):
        assert canonical_bytes([letters]) == f'["{letters}"]'.encode()


@pytest.mark.spec("DS010")
@pytest.mark.parametrize("line", BLOCKS["not-canonical"].splitlines())
def test_values_that_are_not_canonical(line: str) -> None:
    text = re.split(r"  +", line)[0]
    try:
        written = canonical_bytes(json.loads(text)).decode()
    except (InputError, ValueError):
        return
    assert written != text


@pytest.mark.spec("DS011")
def test_a_seal() -> None:
    body, sha256, stored = BLOCKS["sealed"].splitlines()
    assert canonical_bytes(json.loads(body)).decode() == body
    assert seal(json.loads(body))["sha256"] == sha256
    assert canonical_bytes(seal(json.loads(body))).decode() == stored
    assert decoder.decode_json(stored.encode(), 1000)["sha256"] == sha256
    with pytest.raises(decoder.SpecError):
        decoder.decode_json(stored.replace("epoch", "epocH").encode(), 1000)


def test_a_table() -> None:
    text = prose("A.3 A table")
    layers = re.findall(r"`(layers\.\d\.w)`", text.partition("of shape")[0])
    assert len(layers) == 3
    assert re.search(r"of shape \(4, 4\) and `norm` of shape \(8\), all BF16, under the plain grid", text)
    specs = [TensorSpec(name, (4, 4), BF16) for name in layers]
    made = plain_table([*specs, TensorSpec("norm", (8,), BF16)])
    assert made.to_bytes().decode() == BLOCKS["table"]
    assert TensorTable.from_bytes(BLOCKS["table"].encode(), "table") == made
    member = re.search(r"member (\d) of array (\d) is `([^`]*)`", text)
    assert member is not None
    read = decoder.decode_table(BLOCKS["table"].encode())
    assert read.arrays[int(member[2])].names()[int(member[1])] == member[3]


def test_slabs() -> None:
    for line in BLOCKS["slabs"].splitlines():
        found = re.fullmatch(r"(axis|member) +(\d) .*?slabs ([\d ]+)", line)
        assert found is not None
        cells, shown = int(found[2]), [int(one) for one in found[3].split(" ")]
        axis = found[1] == "axis"
        count = 0 if axis else cells
        array = Array.model_validate(
            {
                "pattern": "e.*.w",
                "dtype": "BF16",
                "shape": (cells,),
                "members": (((0, 1 if axis else cells),),),
                "chunk": (1, 1 if axis else cells),
                "slab": {"by": found[1], "of": 1 if axis else 0, "count": count},
            }
        )
        assert array.slabs(np.arange(len(array.grid)), 4).tolist() == shown


def test_ordered_integers() -> None:
    rows = re.findall(r"^o\(([0-9A-F]{4})\) = +(-?\d+) ", BLOCKS["ordered"], re.MULTILINE)
    assert len(rows) == len(BLOCKS["ordered"].splitlines()) >= 10
    for bits, value in rows:
        given = np.array([int(bits, 16)], "<u2")
        assert int(ordered(given, floating=True).view("<i2")[0]) == int(value)


def test_numbers_of_the_digest() -> None:
    lines = dict(re.findall(r"^(.*) = ([0-9a-f]{16})$", BLOCKS["digest"], re.MULTILINE))
    for x in (0, 1):
        assert int(mix(np.array([x], np.uint64))[0]) == int(lines[f"mix({x})"], 16)
    for j in (0, 1, 2047):
        assert int(mix(np.array([0x64656C746173746F + j], np.uint64))[0]) | 1 == int(lines[f"T[{j}]"], 16)
    assert tensor_seed("w") == int(lines['seed("w")'], 16)
    for i in (0, 1, 2, 2048):
        weight = int(position_weights(np.array([i], np.uint64))[0]) * tensor_seed("w") % 2**64
        assert weight == int(lines[f'w("w", {i})'], 16)
    assert len(lines) == 10


def test_digests() -> None:
    whole = re.search(r'^digest of "w" = ([0-9A-F ]+): ([0-9a-f]{16})$', BLOCKS["digest"], re.MULTILINE)
    one = re.search(r'^(.{4}) at index (\d+) of "w" adds ([0-9a-f]{16})$', BLOCKS["digest"], re.MULTILINE)
    assert whole is not None
    assert one is not None
    bits = np.array([[int(value, 16) for value in whole[1].split()]], "<u2")
    short = plain_table([TensorSpec("w", (bits.size,), BF16)])
    assert digest_text(Digester(short).chunk(0, short.arrays[0].grid.box(0), bits)) == whole[2]
    long = plain_table([TensorSpec("w", (2049,), BF16)])
    at, value = np.array([int(one[2])], np.uint32), np.array([int(one[1], 16)], "<u2")
    assert digest_text(Digester(long).at_positions(0, long.arrays[0].grid.box(0), at, value)) == one[3]


# ---- figures, and tables of bytes --------------------------------------------------------------------------


def test_positions_take_what_the_figures_say() -> None:
    for share in figures.SHARES:
        k = round(figures.N * share)
        assert 8 * positions_bytes(k, figures.N, best_low_bits(k, figures.N)) == figures.elias_fano(k)


def fields(heading: str) -> list[tuple[int, int]]:
    """(offset, size) of a table of bytes in section 10."""
    found = re.search(rf"^\| {heading} \|.*?(?=\n\n)", TEXT, re.DOTALL | re.MULTILINE)
    assert found is not None
    rows = re.findall(r"^\| (\d+) \| (\d+) \| ", found[0], re.MULTILINE)
    return [(int(offset), int(size)) for offset, size in rows]


def test_tables_of_bytes() -> None:
    header = fields("offset \\| size \\| field \\|\n\\|---\\|---\\|---\\|\n\\| 0 \\| 8 \\| magic .*?")
    assert [at for at, _ in header] == [sum(size for _, size in header[:n]) for n in range(len(header))]
    assert sum(size for _, size in header) == HEADER_BYTES
    row = fields("index row \\| size \\| field")
    found: Any = ROW.fields
    assert row == [(found[name][1], found[name][0].itemsize) for name in ROW.names or ()]
    run = fields("run header \\| size \\| field")
    assert run == [(0, 1), (1, 1), (2, 2), (4, 4)]


def test_the_checksum_of_section_13() -> None:
    found = re.search(r"of the nine bytes `(\d+)` it is 0x([0-9A-F]{8})", TEXT)
    assert found is not None
    assert int.from_bytes(examples.crc32c(found[1].encode()), "little") == int(found[2], 16)


@pytest.mark.spec("DS110", "DS111")
def test_the_layout() -> None:
    data = BLOCKS["layout"].encode()
    layout = LayoutObject.from_bytes(data, "the example").layout()
    assert LayoutObject.of(layout).to_bytes() == data
    rows = [line[9:].split() for line in BLOCKS["layout-memory"].splitlines()]
    memory = [None if one == "-" else one for row in rows for one in row]
    found = decode_layout(data)
    assert memory == [one and f"{one[0]}[{one[1]}]" for param in layout.params for one in found[param.name]]
