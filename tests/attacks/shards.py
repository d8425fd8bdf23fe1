"""Anchors as an attacker makes them of sound ones: chunks, indexes, checksums, sums and digests."""

from __future__ import annotations

import json
import struct

import google_crc32c
import numpy as np

from deltastore.anchors.sharding import ShardGrid
from deltastore.anchors.zarr_metadata import read_shards
from deltastore.format.canonical import sha256_hex
from deltastore.format.digest import MODULUS, Digester
from deltastore.format.records import record_key, table_key
from deltastore.format.table import Array, TensorTable

from .damage import Draw, pick
from .resealing import Rewriting, prefix_of


def with_checksum(data: bytes) -> bytes:
    """The bytes and their CRC-32C."""
    return data + int(google_crc32c.value(data)).to_bytes(4, "little")


def digests_from(rewriting: Rewriting, slot: int, shift: int) -> None:
    """Shift the digest of the version in this slot, and of all that grow from it."""
    shifted = {rewriting.records[slot]["version"]}
    for record in rewriting.records[slot:]:
        if record["kind"] == "delta" and record["base"] in shifted:
            shifted.add(record["version"])
        if record.get("version") in shifted:
            record["digest"] = f"{(int(record['digest'], 16) + shift) % MODULUS:016x}"


class Anchor:
    """One anchor of a stream that is being rewritten."""

    def __init__(self, rewriting: Rewriting, slot: int) -> None:
        self._rewriting = rewriting
        self._slot = slot
        record = rewriting.records[slot]
        self._prefix = prefix_of(record)
        key = table_key(record["table"])
        self._table = TensorTable.from_bytes(rewriting.objects[key], key)

    def _some_shard(self, draw: Draw) -> tuple[int, ShardGrid, int, str]:
        """(array number, its shards, number of the shard, key of the shard)."""
        while True:
            number = int(draw.integers(len(self._table.arrays)))
            grid = self.grid(number)
            if len(grid.shards):
                shard = int(draw.integers(len(grid.shards)))
                return number, grid, shard, f"array-{number:05d}/{grid.key(shard)}"

    def grid(self, number: int) -> ShardGrid:
        """How the chunks of an array are gathered."""
        key = f"{self._prefix}array-{number:05d}/zarr.json"
        return read_shards(self._rewriting.objects[key], self._table.arrays[number], key)

    def _chunk_bytes(self, array: Array) -> int:
        return int(np.prod(array.chunk)) * array.element.itemsize

    def change_bytes(self, draw: Draw) -> str | None:
        """A shard with other bytes, and the checksums that it should have, or not."""
        number, grid, shard, key = self._some_shard(draw)
        data = bytearray(self._rewriting.objects[self._prefix + key])
        size = self._chunk_bytes(self._table.arrays[number])
        start = len(data) - 16 * grid.places - 4
        how = pick(
            draw, ("chunk", "chunk and its checksum", "entry", "index checksum", "cut", "extend", "swap")
        )
        if how == "cut":
            data = data[: int(draw.integers(len(data)))]
        elif how == "extend":
            at = int(draw.integers(start + 1))
            data[at:at] = draw.bytes(int(draw.integers(1, 40)))
        elif how == "index checksum":
            data[-1 - int(draw.integers(4))] ^= 1 << int(draw.integers(8))
        elif how == "entry":
            at = start + 8 * int(draw.integers(2 * grid.places))
            old = int.from_bytes(data[at : at + 8], "little")
            new = pick(
                draw, (0, 1, old + 1, old - 1, old + size + 4, 1 << 63, (1 << 64) - 1, (1 << 64) - size)
            )
            data[at : at + 8] = (new % (1 << 64)).to_bytes(8, "little")
            data[start:] = with_checksum(bytes(data[start:-4]))
        else:
            self._change_chunk(data, grid, shard, size, how, draw)
        self._rewriting.replace_in_anchor(self._slot, key, bytes(data))
        return f"{how} of {key} of {record_key(self._slot)}"

    def _change_chunk(
        self, data: bytearray, grid: ShardGrid, shard: int, size: int, how: str, draw: Draw
    ) -> None:
        start = len(data) - 16 * grid.places - 4
        places = grid.inside(shard)[1].tolist()
        one, other = (self._offset(data, start, pick(draw, places)) for _ in range(2))
        if how == "swap":
            stored = bytes(data[one : one + size + 4]), bytes(data[other : other + size + 4])
            data[one : one + size + 4], data[other : other + size + 4] = stored[1], stored[0]
            return
        data[one + int(draw.integers(size))] ^= 1 << int(draw.integers(8))
        if how != "chunk":
            data[one : one + size + 4] = with_checksum(bytes(data[one : one + size]))

    def _offset(self, data: bytearray, start: int, place: int) -> int:
        return int(struct.unpack_from("<Q", data, start + 16 * place)[0])

    def change_weight(self, draw: Draw) -> str | None:
        """One element has another value: a consistent other history, wherever no patch is relative to it."""
        number, grid, shard, key = self._some_shard(draw)
        array = self._table.arrays[number]
        data = bytearray(self._rewriting.objects[self._prefix + key])
        chunks, places = (found.tolist() for found in grid.inside(shard))
        which = int(draw.integers(len(chunks)))
        box, size = array.grid.box(chunks[which]), self._chunk_bytes(array)
        at = self._offset(data, len(data) - 16 * grid.places - 4, places[which])
        stored = np.frombuffer(data, array.element.storage, size // array.element.itemsize, at).copy()
        whole = stored.reshape(array.chunk)
        inside = whole[tuple(slice(extent) for extent in box.size)].copy()
        position = int(draw.integers(inside.size))
        old = inside.reshape(-1)[[position]].copy()
        inside.reshape(-1)[position] ^= inside.dtype.type(1 << int(draw.integers(8 * array.element.itemsize)))
        whole[tuple(slice(extent) for extent in box.size)] = inside
        positions = np.array([position], np.uint32)
        new = inside.reshape(-1)[[position]]
        shift = Digester(self._table).difference(number, box, positions, old, new)
        chunk = with_checksum(whole.tobytes())
        data[at : at + size + 4] = chunk
        self._rewriting.replace_in_anchor(self._slot, key, bytes(data))
        self._replace_sum(number, chunks[which], chunk)
        digests_from(self._rewriting, self._slot, shift)
        return f"element {position} of chunk {chunks[which]} of {array.pattern} of {record_key(self._slot)}"

    def _replace_sum(self, number: int, chunk: int, stored: bytes) -> None:
        key = self._prefix + "sums"
        if key not in self._rewriting.objects:
            return
        sums = bytearray(self._rewriting.objects[key])
        at = 16 * (sum(len(array.grid) for array in self._table.arrays[:number]) + chunk)
        sums[at : at + 16] = bytes.fromhex(sha256_hex(stored)[:32])
        self._rewriting.replace_in_anchor(self._slot, "sums", bytes(sums))


def metadata_of(rewriting: Rewriting, slot: int, number: int) -> dict[str, object]:
    """The metadata of an array of an anchor."""
    prefix = prefix_of(rewriting.records[slot])
    found: dict[str, object] = json.loads(rewriting.objects[f"{prefix}array-{number:05d}/zarr.json"])
    return found
