"""The example of a whole stream (SPEC 10 to 13): two tensors, a version stored whole, and a delta on it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from spec import decoder
from spec.examples.dumps import Part, dump
from spec.examples.encoders import Json, crc32c, sealed, section, table, weighted
from spec.examples.patches import patch_parts

__all__ = ["Stream"]

N: Final = 16
NAMES: Final = ("layers.0.w", "layers.1.w")
BASE: Final = ([0x3F80] * N, [0x0000] * N)
NARROW: Final = {2: 0x3F81, 9: 0x3F7F}
DENSE: Final = [0x3C00 + i for i in range(N)]
AFTER: Final = ([NARROW.get(i, bits) for i, bits in enumerate(BASE[0])], DENSE)
CONFIG: Final = b'{"model_type":"tiny"}'
ATTEMPT: Final = "0f" * 16
PREFIX: Final = f"anchors/{0:020}/{ATTEMPT}/"
LITTLE: Final = {"name": "bytes", "configuration": {"endian": "little"}}


class Row(NamedTuple):
    """An index row and its patch."""

    chunk: int
    elements: int
    encoding: int
    difference: int
    patch: list[Part]

    @property
    def data(self) -> bytes:
        """The patch."""
        return b"".join(data for data, _ in self.patch)


def total(weights: Sequence[Sequence[int]]) -> int:
    """The digest of a version."""
    return sum(weighted(name, bits) for name, bits in zip(NAMES, weights, strict=True)) % 2**64


def hash_of(data: bytes) -> str:
    """Its SHA-256."""
    return hashlib.sha256(data).hexdigest()


def nonce(slot: int) -> str:
    """That of a record."""
    return f"{slot:02x}" * 16


class Stream:
    """All objects by key, and the parts of those that are shown as dumps."""

    def __init__(self) -> None:
        self.table = table(dict.fromkeys(NAMES, (N,)), {"layers.*.w": [1, N]})
        self.table_hash = decoder.decode_table(self.table).sha256
        self.digests = [total(BASE), total(AFTER)]
        self.shard = _shard()
        self.anchor = {
            "zarr.json": decoder.canonical(_group(self.table_hash)),
            "array-00000/zarr.json": decoder.canonical(_array()),
            "array-00000/c/0/0": b"".join(data for data, _ in self.shard),
        }
        self.inventory = sealed({"kind": "inventory", "objects": _listed(self.anchor)})
        self.rows = _rows()
        self.pack = [
            *_header(self.rows),
            *_index(self.rows),
            *(part for row in self.rows for part in row.patch),
        ]
        self.pack_bytes = b"".join(data for data, _ in self.pack)
        self.records: list[bytes] = []
        self._append("birth", 0, stream="00112233445566778899aabbccddeeff")
        self._append("epoch", 1, resumes=None, writer="trainer 1")
        self._append_anchor()
        self._append_delta()

    @property
    def objects(self) -> dict[str, bytes]:
        """Key -> object."""
        found = {f"log/{slot:020}.json": record for slot, record in enumerate(self.records)}
        found[f"tables/{self.table_hash}.json"] = self.table
        found[f"files/{hash_of(CONFIG)}"] = CONFIG
        found |= {PREFIX + key: data for key, data in self.anchor.items()}
        found[PREFIX + "inventory.json"] = self.inventory
        found[f"packs/{1:020}/{hash_of(self.pack_bytes)}.pack"] = self.pack_bytes
        return dict(sorted(found.items()))

    def _append_anchor(self) -> None:
        inventory = decoder.decode_json(self.inventory, 2**26)
        anchor = {
            "attempt": ATTEMPT,
            "inventory_bytes": len(self.inventory),
            "inventory_sha256": inventory["sha256"],
        }
        file = {"name": "config.json", "bytes": len(CONFIG), "sha256": hash_of(CONFIG)}
        nbytes = sum(map(len, self.anchor.values()))
        self._append_version(0, "anchor", 2 * N, nbytes, anchor=anchor, files=[file])

    def _append_delta(self) -> None:
        pack = {
            "sha256": hash_of(self.pack_bytes),
            "bytes": len(self.pack_bytes),
            "index_sha256": hash_of(self.pack_bytes[: 64 + 44 * len(self.rows)]),
            "rows": len(self.rows),
            "count": sum(row.elements for row in self.rows),
            "slabs": [0, 0],
        }
        pairs = zip([*BASE[0], *BASE[1]], [*AFTER[0], *AFTER[1]], strict=True)
        changed = sum(old != new for old, new in pairs)
        self._append_version(1, "delta", changed, len(self.pack_bytes), base=0, writers=1, packs=[pack])

    def _append_version(self, version: int, kind: str, changed: int, nbytes: int, **fields: Any) -> None:
        said: Json = {"elements": 2 * N, "changed": changed, "bytes": nbytes}
        said["detector"] = ("none", "snapshot")[version]
        manifest = {"version": version, "table": self.table_hash, "digest": f"{self.digests[version]:016x}"}
        self._append(kind, 1, **manifest, statistics=said, metadata={"step": version}, **fields)

    def _append(self, kind: str, epoch: int, **fields: Any) -> None:
        slot = len(self.records)
        parent = decoder.decode_json(self.records[-1], 2**22)["sha256"] if slot else None
        chain: Json = {"slot": slot, "parent": parent, "epoch": epoch, "nonce": nonce(slot)}
        chain |= {"ignorable": False, "time": 1_700_000_000_000 + 1000 * slot}
        self.records.append(sealed({"kind": kind, **chain, **fields}))

    def blocks(self) -> dict[str, str]:
        """Everything that the appendix shows of it."""
        keys = "\n".join(f"{len(data):>5}  {key}" for key, data in self.objects.items())
        found = {
            "stream-keys": keys,
            "stream-table": self.table.decode(),
            "stream-group": self.anchor["zarr.json"].decode(),
            "stream-array": self.anchor["array-00000/zarr.json"].decode(),
            "stream-shard": dump(self.shard, offsets=True),
            "stream-inventory": self.inventory.decode(),
            "stream-file": CONFIG.decode(),
            "stream-pack": dump([part for part in self.pack if part[0]], offsets=True),
            "stream-digest": "\n".join(self._arithmetic()),
        }
        return found | {f"stream-log-{slot}": record.decode() for slot, record in enumerate(self.records)}

    def _arithmetic(self) -> list[str]:
        lines = [f'seed("{name}") = {decoder.seed(name):016x}' for name in NAMES]
        for name, bits in zip(NAMES, BASE, strict=True):
            lines.append(f"version 0, {name}: {weighted(name, bits):016x}")
        lines.append(f"version 0, the sum: {self.digests[0]:016x}")
        for at, value in sorted(NARROW.items()):
            step, factor = value - BASE[0][at], weighted(NAMES[0], [1], at)
            front = f"{NAMES[0]}[{at}]: ({value:04X} - {BASE[0][at]:04X}) * w = {step:+d} * {factor:016x}"
            lines.append(f"{front} = {step * factor % 2**64:016x}")
        differences = [row.difference for row in self.rows]
        lines += [f"difference of row {n}: {one:016x}" for n, one in enumerate(differences)]
        lines.append(f"version 1: {self.digests[0]:016x} + {differences[0]:016x} + {differences[1]:016x}")
        lines.append(f"         = {(self.digests[0] + sum(differences)) % 2**64:016x} modulo 2^64")
        return [*lines, f"and from its weights: {self.digests[1]:016x}"]


def _group(table_hash: str) -> Json:
    own = {"format": 1, "table": table_hash, "version": 0}
    return {"zarr_format": 3, "node_type": "group", "attributes": {"deltastore": own}}


def _array() -> Json:
    inner = {
        "chunk_shape": [1, N],
        "codecs": [LITTLE, {"name": "crc32c"}],
        "index_codecs": [LITTLE, {"name": "crc32c"}],
        "index_location": "end",
    }
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [2, N],
        "data_type": "bfloat16",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [2, N]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [{"name": "sharding_indexed", "configuration": inner}],
        "attributes": {"deltastore": {"dtype": "BF16", "pattern": "layers.*.w", "members": [[[0, 2]]]}},
    }


def _shard() -> list[Part]:
    """SPEC 13: chunks with their checksums, and the index with its own."""
    parts: list[Part] = []
    entries: list[bytes] = []
    at = 0
    for number, bits in enumerate(BASE):
        chunk = section(bits, 16)
        parts += [(chunk, f"chunk {number}: {N} elements {bits[0]:04X}"), (crc32c(chunk), "its CRC-32C")]
        entries.append(at.to_bytes(8, "little") + (len(chunk) + 4).to_bytes(8, "little"))
        at += len(chunk) + 4
    for number, entry in enumerate(entries):
        offset, length = (int.from_bytes(entry[i : i + 8], "little") for i in (0, 8))
        parts.append((entry, f"place {number}: offset {offset}, length {length}"))
    return [*parts, (crc32c(b"".join(entries)), "CRC-32C of the index")]


def _listed(objects: dict[str, bytes]) -> list[Json]:
    return [
        {"key": key, "bytes": len(data), "sha256": hash_of(data)} for key, data in sorted(objects.items())
    ]


def _rows() -> list[Row]:
    runs = patch_parts({"old": BASE[0], "new": NARROW, "runs": ((2, 0),)})
    raw = [(section(DENSE, 16), f"raw: {N} elements {DENSE[0]:04X} to {DENSE[-1]:04X}")]
    differences = [
        (weighted(name, new) - weighted(name, old)) % 2**64
        for name, old, new in zip(NAMES, BASE, AFTER, strict=True)
    ]
    return [Row(0, len(NARROW), 0, differences[0], runs), Row(1, N, 1, differences[1], raw)]


def _header(rows: list[Row]) -> list[Part]:
    body = sum(len(row.data) for row in rows)
    return [
        (b"\x93DSPACK\n", "magic"),
        ((1).to_bytes(2, "little"), "format 1"),
        (bytes(2), "flags"),
        (len(rows).to_bytes(4, "little"), f"n = {len(rows)} rows"),
        ((1).to_bytes(8, "little"), "version 1"),
        (bytes.fromhex(nonce(3)), "nonce"),
        (body.to_bytes(8, "little"), f"{body} bytes of patches"),
        (bytes(16), "reserved"),
    ]


def _index(rows: list[Row]) -> list[Part]:
    parts: list[Part] = []
    for number, row in enumerate(rows):
        said = ("runs", "raw")[row.encoding]
        parts += [
            (bytes(4), f"row {number}: array 0"),
            (row.chunk.to_bytes(4, "little"), f"chunk {row.chunk}"),
            (len(row.data).to_bytes(4, "little"), f"{len(row.data)} bytes"),
            (row.elements.to_bytes(4, "little"), f"{row.elements} elements"),
            (row.encoding.to_bytes(4, "little"), f"encoding {row.encoding}: {said}"),
            (row.difference.to_bytes(8, "little"), f"digest difference {row.difference:016x}"),
            (hashlib.sha256(row.data).digest()[:16], "the first 16 bytes of the patch's SHA-256"),
        ]
    return parts
