"""A reader of the deltastore format, written from SPEC.md alone and in its order.

It is made to be read beside the specification, not to be fast: whole objects in memory, a local directory as
the store. It shares no code with the package, so that the two can be held against each other. The command
`python spec/decoder.py STREAM_DIRECTORY [VERSION]` prints the digest of a version (without one: of the tip)
and the SHA-256 of the bits of every tensor.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
import sys
from collections.abc import Callable, Sequence
from itertools import count, groupby, pairwise, product, takewhile
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]  # bits, ordered integers, indexes and digests all fit it, and it wraps at 2^64
Position = npt.NDArray[np.int64]


class SpecError(Exception):
    """What a reader refuses, with a code of SPEC 17."""

    def __init__(self, code: str, what: str) -> None:
        super().__init__(f"{code}: {what}")
        self.code = code


def fail(code: str, what: str) -> NoReturn:
    """Refuse."""
    raise SpecError(code, what)


def need(condition: Any, code: str, what: str) -> None:
    """Refuse unless the condition holds."""
    if not condition:
        fail(code, what)


# ---- 3 Storage ---------------------------------------------------------------------------------------------


def get(root: Path, key: str, limit: int, absent: str = "lost_object") -> bytes:
    """DS001, DS004, DS063: the bytes of a key, at most `limit` of them."""
    segment = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
    need(len(key) <= 1024 and all(map(segment.fullmatch, key.split("/"))), "bad_key", repr(key))
    path = root / key
    need(path.is_file(), absent, key)
    need(path.stat().st_size <= limit, "too_large", key)
    return path.read_bytes()


# ---- 5 JSON objects ----------------------------------------------------------------------------------------


def canonical(value: Any) -> bytes:
    """The canonical form of a value that `check_value` admits."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def check_value(value: Any, depth: int) -> None:
    """What SPEC 5 restricts JSON to: kinds of values, size of integers, ASCII keys, nesting."""
    if isinstance(value, int):
        need(abs(value) < 2**53, "bad_json", "an integer is out of range")
    elif isinstance(value, dict | list):
        need(depth <= 16, "bad_json", "nested more than 16 deep")
        need(
            all(map(str.isascii, value if isinstance(value, dict) else [])), "bad_json", "a key is not ASCII"
        )
        for item in value.values() if isinstance(value, dict) else value:
            check_value(item, depth + 1)
    else:
        need(value is None or isinstance(value, str), "bad_json", "a number is not an integer")


def decode_json(raw: bytes, limit: int) -> dict[str, Any]:
    """A sealed object: DS100, DS012, DS010 and DS011, in this order."""
    need(len(raw) <= limit, "too_large", "a JSON object above its limit")
    try:
        value = json.loads(raw.decode())
    except (ValueError, RecursionError):
        fail("bad_json", "not JSON in UTF-8")
    need(isinstance(value, dict), "bad_json", "not a JSON object")
    need(type(value.get("format")) is not int or value["format"] <= 1, "newer_format", "format above 1")
    check_value(value, 1)
    try:
        need(canonical(value) == raw, "bad_json", "not in canonical form")
    except UnicodeEncodeError:
        fail("bad_json", "a lone surrogate")
    body = hashlib.sha256(canonical({key: item for key, item in value.items() if key != "sha256"}))
    need(body.hexdigest() == value.get("sha256"), "bad_hash", "the sha256 of a JSON object")
    return dict(value)


def conforms(value: Any, schema: Any) -> bool:
    """DS013. A schema is a dict (exactly these members), a one-item list (a list of such items), a tuple (one
    of these), a range of integers, a pattern of text, a type, a predicate or a literal.
    """
    if isinstance(schema, dict):
        same = isinstance(value, dict) and value.keys() == schema.keys()
        return same and all(conforms(value[key], item) for key, item in schema.items())
    if isinstance(schema, list):
        return isinstance(value, list) and all(conforms(item, schema[0]) for item in value)
    if isinstance(schema, tuple):
        return any(conforms(value, item) for item in schema)
    if isinstance(schema, range):
        return type(value) is int and value in schema
    if isinstance(schema, re.Pattern):
        return isinstance(value, str) and schema.fullmatch(value) is not None
    if isinstance(schema, type):
        return type(value) is schema
    return bool(schema(value)) if callable(schema) else type(value) is type(schema) and value == schema


COUNT, HASH, HEX32 = range(2**53), re.compile("[0-9a-f]{64}"), re.compile("[0-9a-f]{32}")
SEAL = {"format": 1, "sha256": HASH}


# ---- 6 Element types ---------------------------------------------------------------------------------------

FLOATS = dict.fromkeys(["F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"], 8)
FLOATS |= {"BF16": 16, "F16": 16, "F32": 32, "F64": 64}
WIDTHS = FLOATS | {"BOOL": 8, "F8_E8M0": 8, "C64": 64}
WIDTHS |= {f"{sign}{width}": width for sign in "UI" for width in (8, 16, 32, 64)}


def ordered(bits: U64, dtype: str) -> U64:
    """SPEC 6.1: o, from bits to ordered integers modulo 2^W and back."""
    if dtype not in FLOATS:
        return bits
    sign = WIDTHS[dtype] - 1
    return np.where(bits >> np.uint64(sign) == 1, bits ^ np.uint64(2**sign - 1), bits)


# ---- 7 Tensor table ----------------------------------------------------------------------------------------


def split_name(name: str) -> tuple[str, tuple[int, ...]]:
    """SPEC 7.1: the pattern and the index tuple of a tensor's name."""
    parts = name.split(".")
    if "*" in parts:
        return name, ()
    indexes = [part for part in parts if re.fullmatch("0|[1-9][0-9]{0,8}", part)]
    if len(indexes) > 8:
        return name, ()
    return ".".join("*" if part in indexes else part for part in parts), tuple(map(int, indexes))


def join_name(pattern: str, indexes: tuple[int, ...]) -> str:
    """The name with this pattern and index tuple."""
    rest = map(str, indexes)
    return ".".join(next(rest) if part == "*" and indexes else part for part in pattern.split("."))


def boxes(tuples: list[tuple[int, ...]]) -> list[list[list[int]]]:
    """DS020: the boxes of ascending index tuples."""
    result: list[list[list[int]]] = []
    for first, group in groupby(tuples, key=lambda item: item[:1]):
        if not first:
            return [[]]
        rest = boxes([item[1:] for item in group])
        if len(rest) == 1 and result and result[-1][0][1] == first[0] and result[-1][1:] == rest[0]:
            result[-1][0][1] += 1
        else:
            result += [[[first[0], first[0] + 1], *box] for box in rest]
    return result


class Array(NamedTuple):
    """Tensors stacked on a leading member axis, and how they are cut; `indexes` are the members' tuples."""

    pattern: str
    dtype: str
    shape: tuple[int, ...]
    members: list[list[list[int]]]
    chunk: tuple[int, ...]
    slab: dict[str, Any]
    indexes: list[tuple[int, ...]]
    slabs: int

    def names(self) -> list[str]:
        """Tensor names by member number."""
        return [join_name(self.pattern, indexes) for indexes in self.indexes]

    def stacked(self) -> tuple[int, ...]:
        """Extents over (member, tensor axes)."""
        return (len(self.indexes), *self.shape)

    def grid(self) -> list[int]:
        """SPEC 7.2: number of chunks along every axis."""
        return [-(-extent // step) for extent, step in zip(self.stacked(), self.chunk, strict=True)]

    def cell(self, chunk: int) -> list[int]:
        """Grid coordinates of a chunk."""
        grid = self.grid()
        return [chunk // math.prod(grid[axis + 1 :]) % extent for axis, extent in enumerate(grid)]

    def box(self, cell: list[int]) -> tuple[slice, ...]:
        """The box of a chunk, cut short at the upper edges."""
        axes = zip(cell, self.chunk, self.stacked(), strict=True)
        return tuple(slice(at * step, min((at + 1) * step, extent)) for at, step, extent in axes)

    def elements(self, chunk: int) -> int:
        """N: number of elements of a chunk."""
        return math.prod(axis.stop - axis.start for axis in self.box(self.cell(chunk)))

    def slab_of(self, chunk: int) -> int:
        """SPEC 7.3: the slab of a chunk."""
        by, of, total = self.slab["by"], self.slab["of"], self.slab["count"]
        if by == "common":
            return 0
        at = self.cell(chunk)
        part, whole = (at[of], self.grid()[of]) if by == "axis" else (self.indexes[at[0]][of], total)
        return int(1 + part * self.slabs // whole)


class Table(NamedTuple):
    """A tensor table."""

    sha256: str
    arrays: list[Array]


ARRAY = {
    "pattern": str,
    "dtype": tuple(WIDTHS),
    "shape": [COUNT],
    "members": [[[COUNT]]],
    "chunk": [range(1, 2**53)],
}
ARRAY |= {"slab": {"by": ("common", "axis", "member"), "of": COUNT, "count": COUNT}}
TABLE = {**SEAL, "kind": "table", "slabs": range(4097), "arrays": [ARRAY]}


def member_indexes(pattern: str, members: list[list[list[int]]]) -> list[tuple[int, ...]]:
    """DS020: the index tuples of boxes that follow its procedure, in order of member number."""
    good = all(len(axis) == 2 and axis[0] < axis[1] <= 10**9 for box in members for axis in box)
    need(good and members, "bad_json", "a range of members")
    need(len({len(box) for box in members}) == 1, "bad_json", "boxes of different rank")
    total = sum(math.prod(high - low for low, high in box) for box in members)
    need(total <= 2**21, "bad_json", "tensors of a table")
    indexes = [at for box in members for at in product(*(range(low, high) for low, high in box))]
    ascend = all(one < two for one, two in pairwise(indexes))
    need(ascend and boxes(indexes) == members, "bad_json", "members are not in the boxes of DS020")
    stars = pattern.split(".").count("*")
    need(len(indexes[0]) in (0, stars), "bad_json", "number of indexes")
    need(split_name(join_name(pattern, indexes[0])) == (pattern, indexes[0]), "bad_json", "not a pattern")
    return indexes


def check_array(array: Array) -> None:
    """DS023 to DS025, and the limits of SPEC 16."""
    need(all(1 <= len(name.encode()) <= 1024 for name in array.names()), "bad_json", "the length of a name")
    axes = len(array.shape) <= 16 and len(array.chunk) == len(array.shape) + 1
    need(axes and math.prod(array.chunk) <= 2**20, "bad_json", "axes, or elements of a chunk (DS023, DS024)")
    need(math.prod(array.grid()) < 2**32, "bad_json", "chunks of an array")
    by, of, total = array.slab["by"], array.slab["of"], array.slab["count"]
    good = by == "common" or array.slabs > 0
    good &= (by != "common" or of == 0) and (by == "member" or total == 0)
    good &= by != "axis" or of <= len(array.shape)
    if by == "member":
        good &= of < len(array.indexes[0]) and array.chunk[0] == 1
        good &= good and all(indexes[of] < total for indexes in array.indexes)
    need(good, "bad_json", "a slab rule (DS025)")


def decode_table(raw: bytes) -> Table:
    """SPEC 7: a tensor table from its stored bytes."""
    value = decode_json(raw, 64 * 2**20)
    need(conforms(value, TABLE), "bad_json", "not of the table's schema")
    arrays = []
    for item in value["arrays"]:
        indexes = member_indexes(item["pattern"], item["members"])
        fields = item | {"shape": tuple(item["shape"]), "chunk": tuple(item["chunk"])}
        arrays.append(Array(**fields, indexes=indexes, slabs=value["slabs"]))
        check_array(arrays[-1])
    keys = [(array.pattern, len(array.indexes[0]), array.dtype, array.shape) for array in arrays]
    names = [name for array in arrays for name in array.names()]
    need(len(names) <= 2**21, "bad_json", "tensors of a table")
    total = sum(len(array.pattern.encode()) * len(array.indexes) for array in arrays)
    need(total <= 2**28, "bad_json", "bytes of all names")
    ascend = all(one < two for one, two in pairwise(keys))
    need(
        ascend and len(set(names)) == len(names),
        "bad_json",
        "order of arrays, or a tensor twice (DS021, DS022)",
    )
    return Table(value["sha256"], arrays)


# ---- 8 Digest ----------------------------------------------------------------------------------------------


def mix(x: U64) -> U64:
    """Mix the bits of a number, modulo 2^64."""
    z = x + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


T: U64 = mix(np.uint64(0x64656C746173746F) + np.arange(2048, dtype=np.uint64)) | np.uint64(1)


def seed(name: str) -> int:
    """The factor of a tensor."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") | 1


def factors(name: str, index: U64) -> U64:
    """w(s, i) for row-major indexes of elements of a tensor."""
    block = mix(index // np.uint64(2048)) | np.uint64(1)
    return T[(index % np.uint64(2048)).astype(np.int64)] * block * np.uint64(seed(name))


def digest(name: str, bits: U64, first: int = 0) -> int:
    """What the elements from index `first` of a tensor on add to the digest."""
    return int((bits * factors(name, np.arange(first, first + len(bits), dtype=np.uint64))).sum())


def box_factors(array: Array, box: tuple[slice, ...]) -> U64:
    """w for every position of a chunk."""
    index = np.zeros(1, dtype=np.uint64)
    for axis, extent in zip(box[1:], array.shape, strict=True):
        along = np.arange(axis.start, axis.stop, dtype=np.uint64)
        index = (index[:, None] * np.uint64(extent) + along).reshape(-1)
    return np.concatenate([factors(name, index) for name in array.names()[box[0]]])


def tensors(table: Table, weights: list[U64]) -> dict[str, tuple[Array, U64]]:
    """Views of the bits of every tensor by its name; weights are one stacked array per array of the table."""
    return {
        name: (array, stacked[member, ...])
        for array, stacked in zip(table.arrays, weights, strict=True)
        for member, name in enumerate(array.names())
    }


# ---- 9 Patch -----------------------------------------------------------------------------------------------


class Run(NamedTuple):
    """Elements whose residues have one width; a raw patch is one run over the whole chunk."""

    width: int
    positions: Position
    residues: U64


def section(patch: bytes, at: int, items: int, width: int) -> tuple[U64, int]:
    """DS030: the numbers of `width` bits in a bit section, lowest bit first, and the offset behind it."""
    end = at + -(-items * width // 32) * 4
    need(end <= len(patch), "bad_patch", "a section ends behind the patch (DS034)")
    bits = np.unpackbits(np.frombuffer(patch[at:end], np.uint8), bitorder="little")
    need(not bits[items * width :].any(), "bad_patch", "padding is not zero (DS030)")
    numbers = np.zeros(items, np.uint64)
    for bit in range(width):
        numbers |= bits[bit : items * width : width].astype(np.uint64) << np.uint64(bit)
    return numbers, end


def decode_run(patch: bytes, at: int, header: bytes, n: int) -> tuple[Run, int]:
    """SPEC 9.1: a run whose body starts at `at`, and the offset behind it."""
    width, low_bits, reserved, k = struct.unpack("<BBHI", header)
    good = width in (2, 4, 8, 16, 32, 64) and low_bits <= 19 and reserved == 0 and 1 <= k <= n
    need(good, "bad_patch", "a run header (DS031)")
    low, at = section(patch, at, k, low_bits)
    high, at = section(patch, at, k + ((n - 1) >> low_bits), 1)
    residues, at = section(patch, at, k, width)
    ones = np.flatnonzero(high)
    need(len(ones) == k, "bad_patch", "ones of a high section (DS032)")
    positions = (ones - np.arange(k)) << low_bits | low.astype(np.int64)
    need((np.diff(positions) > 0).all() and positions[-1] < n, "bad_patch", "positions (DS032)")
    return Run(width, positions, residues), at


def decode_patch(patch: bytes, dtype: str, n: int, encoding: int) -> list[Run]:
    """SPEC 9.1 and 9.3: the runs of a patch of a chunk of n elements."""
    if encoding == 1:
        bits, at = section(patch, 0, n, WIDTHS[dtype])
        need(at == len(patch), "bad_patch", "the length of a raw patch")
        return [Run(WIDTHS[dtype], np.arange(n), ordered(bits, dtype))]
    need(encoding == 0, "bad_patch", "an unknown encoding")
    r = int.from_bytes(patch[:4], "little")
    at = 4 + 8 * r
    need(1 <= r <= 6 and at <= len(patch), "bad_patch", "number of runs")
    runs: list[Run] = []
    for start in range(4, 4 + 8 * r, 8):
        run, at = decode_run(patch, at, patch[start : start + 8], n)
        runs.append(run)
    widths = [run.width for run in runs]
    need(widths == sorted(set(widths)) and widths[-1] <= WIDTHS[dtype], "bad_patch", "widths (DS031)")
    need(at == len(patch), "bad_patch", "bytes behind the last section (DS034)")
    positions = np.concatenate([run.positions for run in runs])
    need(len(np.unique(positions)) == len(positions), "bad_patch", "a position in two runs (DS033)")
    return runs


def apply_patch(runs: list[Run], dtype: str, old: U64) -> U64:
    """SPEC 9.2: the new bits of a chunk, from those that stand there."""
    result = old.copy()
    for run in runs:
        new = run.residues
        if run.width < WIDTHS[dtype]:
            base, half = ordered(old[run.positions], dtype), np.uint64(2 ** (run.width - 1))
            d = (new - base) & np.uint64(2**run.width - 1)
            need(not (d == half).any(), "bad_patch", "neither the base's value nor the new one (DS036)")
            d = np.where(d > half, d - np.uint64(2**run.width), d)
            new = (base + d) & np.uint64(2 ** WIDTHS[dtype] - 1)
        result[run.positions] = ordered(new, dtype)
    return result


# ---- 10 Pack -----------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """An index row, and where in the pack its patch starts."""

    array: int
    chunk: int
    length: int
    elements: int
    encoding: int
    difference: int
    sha256: bytes
    offset: int


class Pack(NamedTuple):
    """A pack whose index has been checked; `slabs` are those of its rows."""

    version: int
    rows: list[Row]
    slabs: list[int]
    raw: bytes

    def runs(self, row: Row, array: Array) -> list[Run]:
        """DS044: the runs of a row's patch."""
        patch = self.raw[row.offset : row.offset + row.length]
        need(hashlib.sha256(patch).digest()[:16] == row.sha256, "bad_hash", "the hash of a patch (DS044)")
        runs = decode_patch(patch, array.dtype, array.elements(row.chunk), row.encoding)
        need(sum(len(run.positions) for run in runs) == row.elements, "bad_patch", "count of a patch (DS044)")
        return runs


def check_row(row: Row, table: Table) -> int:
    """DS041, DS043: the slab of the row's chunk."""
    need(row.array < len(table.arrays), "bad_index", "an array number (DS041)")
    array = table.arrays[row.array]
    need(row.chunk < math.prod(array.grid()), "bad_index", "a chunk number (DS041)")
    n = array.elements(row.chunk)
    size = n * WIDTHS[array.dtype] // 8
    good = row.length > 0 and row.length % 4 == 0 and row.length <= 2 * size + 256 and 1 <= row.elements <= n
    need(good and row.encoding in (0, 1), "bad_index", "length, count or encoding of a row")
    raw = row.length == -(-size // 4) * 4 and row.elements == n
    need(row.encoding == 0 or raw, "bad_index", "length or count of a raw row (DS043)")
    return array.slab_of(row.chunk)


def decode_pack(raw: bytes, table: Table) -> Pack:
    """DS040 to DS043: a pack, its index checked, its patches not yet."""
    need(len(raw) <= 2**30, "too_large", "a pack")
    need(len(raw) >= 64 and raw[:8] == b"\x93DSPACK\n", "bad_index", "no pack")
    form, flags, n, version, total = struct.unpack("<HHIQ16xQ", raw[8:48])
    need(form <= 1, "newer_format", "a pack's format")
    need(form == 1 and flags == 0 and not any(raw[48:64]), "bad_index", "format, flags or reserved bytes")
    at = 64 + 44 * n
    need(1 <= n <= 2**22 and at <= len(raw), "bad_index", "number of rows")
    need(at + total == len(raw), "bad_index", "size of all patches")
    rows: list[Row] = []
    for fields in struct.iter_unpack("<5IQ16s", raw[64:at]):
        rows.append(Row._make((*fields, at)))
        at += rows[-1].length
    need(at == len(raw), "bad_index", "lengths do not add up (DS040)")
    slabs = [check_row(row, table) for row in rows]
    keys = [(slab, row.array, row.chunk) for slab, row in zip(slabs, rows, strict=True)]
    need(all(one < two for one, two in pairwise(keys)), "bad_index", "rows do not ascend (DS042)")
    return Pack(version, rows, slabs, raw)


# ---- 11 Log, 12 Manifests ----------------------------------------------------------------------------------


def is_metadata(value: Any) -> bool:
    """The user's metadata."""
    name, item = re.compile("[A-Za-z0-9_.-]{1,64}"), (re.compile("(?s:.{0,1024})"), int, bool, None)
    few = isinstance(value, dict) and len(value) <= 64
    return few and all(name.fullmatch(key) and conforms(one, item) for key, one in value.items())


LABEL = re.compile("(?s:.{0,200})")
RECORD = {**SEAL, "kind": str, "slot": COUNT, "parent": (HASH, None), "epoch": COUNT, "nonce": HEX32}
RECORD |= {"time": COUNT, "ignorable": bool}
MANIFEST = {**RECORD, "version": COUNT, "table": HASH, "digest": re.compile("[0-9a-f]{16}")}
STATISTICS = {"elements": COUNT, "changed": COUNT, "bytes": COUNT, "detector": LABEL}
CERTIFICATE = dict.fromkeys(["inverted", "uncertain", "blocks", "settled", "unexplained"], COUNT)
MANIFEST |= {"statistics": (STATISTICS, {**STATISTICS, "certificate": CERTIFICATE})}
MANIFEST |= {"metadata": is_metadata}
PACK = {"sha256": HASH, "bytes": range(1, 2**30 + 1), "index_sha256": HASH, "rows": range(1, 2**22 + 1)}
PACK |= {"count": COUNT, "slabs": lambda pair: conforms(pair, [COUNT]) and len(pair) == 2}
ANCHOR = {"attempt": HEX32, "inventory_sha256": HASH, "inventory_bytes": range(1, 2**26 + 1)}
FILE = {"name": re.compile("[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}"), "bytes": range(2**28 + 1), "sha256": HASH}
KINDS: dict[str, dict[str, Any]] = {
    "birth": {**RECORD, "stream": HEX32},
    "epoch": {**RECORD, "resumes": (COUNT, None), "writer": LABEL},
    "delta": {**MANIFEST, "base": COUNT, "writers": range(1, 2**53), "packs": [PACK]},
    "anchor": {**MANIFEST, "anchor": ANCHOR, "files": [FILE]},
}


def decode_record(raw: bytes, slot: int) -> dict[str, Any]:
    """DS050 to DS052: a record by itself."""
    record = decode_json(raw, 4 * 2**20)
    kind = str(record.get("kind"))
    schema = KINDS.get(kind, RECORD)
    need(kind in KINDS or record.get("ignorable") is True, "unknown_kind", kind)
    members = record if kind in KINDS else {key: item for key, item in record.items() if key in RECORD}
    need(conforms(members, schema), "bad_json", f"members of a record of kind {kind}")
    need(record["slot"] == slot, "bad_chain", "a record in another slot than its own (DS051)")
    need((record["parent"] is None) == (slot == 0), "bad_json", "null is the parent in slot 0 only")
    need((kind == "birth") == (slot == 0), "bad_chain", "a birth stands in slot 0 only (DS050)")
    if kind == "delta":
        need(record["base"] < record["version"], "bad_json", "a base that is not below its version (DS060)")
        short = any(64 + 44 * pack["rows"] > pack["bytes"] for pack in record["packs"])
        backwards = any(pack["slabs"][0] > pack["slabs"][1] for pack in record["packs"])
        need(len(record["packs"]) <= 8192 and not short and not backwards, "bad_json", "packs")
    if kind == "anchor":
        names = {file["name"] for file in record["files"]}
        need(len(record["files"]) == len(names) <= 256, "bad_json", "number of files, or a name twice")
    return record


def read_log(root: Path) -> dict[int, dict[str, Any]]:
    """DS051, DS053 to DS055, DS060: the manifests of a stream by version."""
    manifests: dict[int, dict[str, Any]] = {}
    base: dict[str, Any] = {}
    parent, epoch, last = None, 0, -1
    slots = takewhile(lambda slot: slot == 0 or (root / f"log/{slot:020}.json").exists(), count())
    for slot in slots:
        record = decode_record(get(root, f"log/{slot:020}.json", 4 * 2**20, "no_stream"), slot)
        need(record["parent"] == parent, "bad_chain", "the parent's hash (DS051)")
        parent, kind = record["sha256"], record["kind"]
        epoch += kind == "epoch"
        need(record["epoch"] == epoch, "bad_chain", "the epoch (DS053)")
        if kind == "epoch":
            resumed = record["resumes"]
            need(resumed is None or resumed in manifests, "bad_chain", "the resumed version (DS054)")
            base = manifests.get(resumed, {})
        if kind in ("delta", "anchor"):
            need(record["version"] > last and epoch > 0, "bad_chain", "the version (DS054, DS055)")
            if kind == "delta":
                same = (base.get("version"), base.get("table")) == (record["base"], record["table"])
                need(same, "bad_chain", "the base (DS055, DS060)")
            last, base = record["version"], record
            manifests[last] = record
    return manifests


# ---- 13 Anchors --------------------------------------------------------------------------------------------

ZARR_TYPES = {"BF16": "bfloat16", "F16": "float16", "F32": "float32", "F64": "float64"}
ZARR_TYPES |= {f"I{width}": f"int{width}" for width in (8, 16, 32, 64)}
OBJECT = {"key": str, "bytes": range(2**31 + 1), "sha256": HASH}
INVENTORY = {**SEAL, "kind": "inventory", "objects": [OBJECT]}

CRC32C = list(range(256))
for _ in range(8):
    CRC32C = [value >> 1 ^ 0x82F63B78 * (value & 1) for value in CRC32C]


def checked(data: bytes) -> bytes:
    """Zarr codec `crc32c`: the bytes in front of their checksum (DS073)."""
    crc = 0xFFFFFFFF
    for byte in data[:-4]:
        crc = crc >> 8 ^ CRC32C[(crc ^ byte) & 0xFF]
    need(data[-4:] == (crc ^ 0xFFFFFFFF).to_bytes(4, "little"), "bad_anchor", "a crc32c")
    return data[:-4]


def parse_zarr(raw: bytes) -> dict[str, Any]:
    """A `zarr.json`, where the attribute `deltastore` is an object."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        fail("bad_anchor", "zarr.json is no JSON")
    good = isinstance(value, dict) and isinstance(value.get("attributes"), dict)
    need(good and isinstance(value["attributes"].get("deltastore"), dict), "bad_anchor", "attributes")
    return dict(value)


def sequence(*schemas: Any) -> Callable[[Any], bool]:
    """A schema: a list of as many items, each of its own schema."""
    return lambda value: (
        isinstance(value, list) and len(value) == len(schemas) and all(map(conforms, value, schemas))
    )


def shard_shape(meta: dict[str, Any], array: Array) -> list[int]:
    """DS071: the shard shape of a Zarr array, everything else of which is as the table says."""
    width = WIDTHS[array.dtype]
    little = {"name": "bytes", "configuration": {"endian": "little"}}
    order = (little, {"name": "bytes"}, {"name": "bytes", "configuration": {}}) if width == 8 else little
    crc = ({"name": "crc32c"}, {"name": "crc32c", "configuration": {}})
    inner: dict[str, Any] = {"chunk_shape": sequence(*array.chunk), "codecs": sequence(order, crc)}
    inner |= {"index_codecs": sequence(little, crc)}
    sharding = (inner | {"index_location": "end"}, inner)  # the end is Zarr's default
    steps = sequence(*(range(step, 2**53, step) for step in array.chunk))
    slash = ({"name": "default"}, {"name": "default", "configuration": {"separator": "/"}})
    schema: dict[str, Any] = {"zarr_format": 3, "node_type": "array", "shape": sequence(*array.stacked())}
    schema |= {"data_type": ZARR_TYPES.get(array.dtype, f"uint{width}"), "chunk_key_encoding": slash}
    schema |= {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": steps}}}
    schema |= {"codecs": sequence({"name": "sharding_indexed", "configuration": sharding})}
    good = conforms({key: meta.get(key) for key in schema}, schema) and not meta.get("storage_transformers")
    need(good, "bad_anchor", "a Zarr array that is not the table's (DS071)")
    own = {"dtype": array.dtype, "pattern": array.pattern, "members": array.members}
    need(meta["attributes"]["deltastore"] == own, "bad_anchor", "the attributes of a Zarr array")
    return [int(step) for step in meta["chunk_grid"]["configuration"]["chunk_shape"]]


def decode_shard(data: bytes, at: Sequence[int], shard: list[int], array: Array, stacked: U64) -> None:
    """Write the inner chunks of the shard at these coordinates of the shard grid into the stacked array."""
    per = [whole // step for whole, step in zip(shard, array.chunk, strict=True)]
    end = len(data) - 16 * math.prod(per) - 4
    need(end >= 0, "bad_anchor", "a shard shorter than its index")
    index = np.frombuffer(checked(data[end:]), "<u8").reshape(*per, 2)
    width = WIDTHS[array.dtype] // 8
    size = math.prod(array.chunk) * width + 4
    for inside in product(*map(range, per)):
        cell = [one * step + more for one, step, more in zip(at, per, inside, strict=True)]
        if any(one >= extent for one, extent in zip(cell, array.grid(), strict=True)):
            continue
        start, length = map(int, index[inside])
        need(length == size and start + size <= end, "bad_anchor", "a chunk that is not stored (DS070)")
        bits = np.frombuffer(checked(data[start : start + size]), f"<u{width}").reshape(array.chunk)
        box = array.box(cell)
        stacked[box] = bits[tuple(slice(0, axis.stop - axis.start) for axis in box)]


def load_anchor(root: Path, manifest: dict[str, Any], table: Table) -> list[U64]:
    """SPEC 13: the weights of a version that is stored whole."""
    anchor, version = manifest["anchor"], manifest["version"]
    prefix = f"anchors/{version:020}/{anchor['attempt']}/"
    raw = get(root, prefix + "inventory.json", 64 * 2**20)
    need(len(raw) == anchor["inventory_bytes"], "bad_length", "the inventory")
    inventory = decode_json(raw, 64 * 2**20)
    need(conforms(inventory, INVENTORY) and len(inventory["objects"]) <= 2**18, "bad_json", "the inventory")
    need(inventory["sha256"] == anchor["inventory_sha256"], "bad_hash", "the inventory (DS072)")
    objects = {item["key"]: item for item in inventory["objects"]}
    ascend = [item["key"] for item in inventory["objects"]] == sorted(objects)
    need(ascend, "bad_json", "keys of the inventory do not ascend")

    def fetch(key: str) -> bytes:
        need(key in objects, "bad_anchor", f"{key} is not in the inventory (DS072)")
        data = get(root, prefix + key, 2**31)
        need(len(data) == objects[key]["bytes"], "bad_length", key)
        need(hashlib.sha256(data).hexdigest() == objects[key]["sha256"], "bad_hash", key)
        return data

    group = parse_zarr(fetch("zarr.json"))
    own = {"format": 1, "table": table.sha256, "version": version}
    good = (group.get("zarr_format"), group.get("node_type")) == (3, "group")
    need(good and group["attributes"]["deltastore"] == own, "bad_anchor", "the Zarr group")
    weights = []
    for number, array in enumerate(table.arrays):
        shard = shard_shape(parse_zarr(fetch(f"array-{number:05}/zarr.json")), array)
        size = math.prod(array.stacked()) * WIDTHS[array.dtype] // 8
        need(size <= sum(item["bytes"] for item in objects.values()), "bad_anchor", "too few bytes (DS070)")
        stacked = np.zeros(array.stacked(), np.uint64)
        grid = [-(-extent // step) for extent, step in zip(stacked.shape, shard, strict=True)]
        for at in product(*map(range, grid)):
            key = f"array-{number:05}/c/" + "/".join(map(str, at))
            decode_shard(fetch(key), at, shard, array, stacked)
        weights.append(stacked)
    return weights


# ---- 15 Reading a version ----------------------------------------------------------------------------------


def open_pack(root: Path, version: int, entry: dict[str, Any], table: Table) -> Pack:
    """DS061: a pack that is what its entry in the manifest says."""
    raw = get(root, f"packs/{version:020}/{entry['sha256']}.pack", 2**30)
    need(len(raw) == entry["bytes"], "bad_length", "a pack")
    need(hashlib.sha256(raw).hexdigest() == entry["sha256"], "bad_hash", "a pack")
    pack = decode_pack(raw, table)
    index = hashlib.sha256(raw[: pack.rows[0].offset]).hexdigest()
    need(index == entry["index_sha256"], "bad_hash", "the index of a pack")
    found = [
        pack.version,
        len(pack.rows),
        sum(row.elements for row in pack.rows),
        pack.slabs[0],
        pack.slabs[-1],
    ]
    need(
        found == [version, entry["rows"], entry["count"], *entry["slabs"]],
        "bad_index",
        "a pack's entry (DS061)",
    )
    return pack


def apply_delta(root: Path, manifest: dict[str, Any], table: Table, weights: list[U64], base: int) -> None:
    """SPEC 15.1: check and work out the whole version, then write; `base` is the digest of the weights."""
    staged: list[tuple[U64, Position, U64]] = []
    written: dict[tuple[int, int], npt.NDArray[np.bool_]] = {}
    for entry in manifest["packs"]:
        pack = open_pack(root, manifest["version"], entry, table)
        for row in pack.rows:
            array = table.arrays[row.array]
            box = array.box(array.cell(row.chunk))
            chunk = weights[row.array][box]
            runs = pack.runs(row, array)
            old = chunk.reshape(-1)
            new = apply_patch(runs, array.dtype, old)
            difference = int(((new - old) * box_factors(array, box)).sum())
            need(difference == row.difference, "bad_digest", "the digest difference of a patch")
            base += difference
            positions = np.concatenate([run.positions for run in runs])
            taken = written.setdefault((row.array, row.chunk), np.zeros(len(old), np.bool_))
            need(not taken[positions].any(), "bad_patch", "an element in two packs (DS045)")
            taken[positions] = True
            staged.append((chunk, positions, new[positions]))
    need(f"{base % 2**64:016x}" == manifest["digest"], "bad_digest", "the version (DS062)")
    for chunk, positions, bits in staged:
        chunk[np.unravel_index(positions, chunk.shape)] = bits


def read_version(
    root: Path, version: int | None = None
) -> tuple[dict[str, Any], dict[str, tuple[Array, U64]]]:
    """The manifest of a version (without one: of the tip), and the array and the bits of every tensor."""
    manifests = read_log(root)
    version = max(manifests, default=-1) if version is None else version
    need(version in manifests, "no_version", f"version {version}")
    path = [manifests[version]]
    while path[-1]["kind"] == "delta":
        path.append(manifests[path[-1]["base"]])
    table = decode_table(get(root, f"tables/{path[0]['table']}.json", 64 * 2**20))
    need(table.sha256 == path[0]["table"], "bad_hash", "a table that is not of its name")
    anchor = path.pop()
    weights, base = load_anchor(root, anchor, table), anchor["digest"]
    bits = tensors(table, weights)
    found = sum(digest(name, one.reshape(-1)) for name, (_, one) in bits.items()) % 2**64
    need(f"{found:016x}" == base, "bad_digest", "the weights of an anchor (DS093)")
    for manifest in reversed(path):
        apply_delta(root, manifest, table, weights, int(base, 16))
        base = manifest["digest"]
    return manifests[version], bits


def stored(array: Array, bits: U64) -> bytes:
    """The bits of a tensor as bytes, little-endian."""
    return bits.astype(f"<u{WIDTHS[array.dtype] // 8}").tobytes()


def main(arguments: list[str]) -> int:
    """Print what a version holds; the status is 1 where it is refused."""
    if len(arguments) not in (1, 2) or not all(map(str.isdecimal, arguments[1:])):
        print("usage: python spec/decoder.py STREAM_DIRECTORY [VERSION]", file=sys.stderr)
        return 2
    try:
        manifest, bits = read_version(Path(arguments[0]), *map(int, arguments[1:]))
    except SpecError as error:
        print(error, file=sys.stderr)
        return 1
    hashes = {name: hashlib.sha256(stored(*one)).hexdigest() for name, one in bits.items()}
    shown = {"version": manifest["version"], "digest": manifest["digest"], "tensors": hashes}
    print(json.dumps(shown, indent=2, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
