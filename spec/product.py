"""The package as an implementation that ``spec.conformance`` tests: ``python -m spec.product``.

Each answer comes from the code that readers, writers and the validator use.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from deltastore.errors import CorruptError, DeltastoreError
from deltastore.format.attestation import Attestation
from deltastore.format.canonical import canonical_bytes, no_number
from deltastore.format.digest import digest_text
from deltastore.format.dtypes import DTYPES
from deltastore.format.inventory import Inventory
from deltastore.format.names import split_name
from deltastore.format.pack import PackIndex
from deltastore.format.patch import decode_patch, encode_patch
from deltastore.format.records import parse_record
from deltastore.format.sealed import Sealed
from deltastore.format.seeds import tensor_seed
from deltastore.format.table import TensorTable
from deltastore.format.votes import Attempt, Call, Claim, Ending, Join, Vote
from deltastore.kernels.cpu import digest_range
from deltastore.layout.layout_object import LayoutObject
from deltastore.layout.pieces import Layout
from deltastore.replay import read_table
from deltastore.stores.local import LocalStore
from deltastore.stream import AsyncStream
from deltastore.validate import validate
from deltastore.validate.checks import Level
from spec.answering import Operation, answer, known
from spec.live_types import LIVE_TYPES

Request = dict[str, Any]
Answer = dict[str, Any]
Bits = np.ndarray[Any, Any]

KINDS: dict[str, type[Sealed]] = {
    "call": Call,
    "join": Join,
    "claim": Claim,
    "attempt": Attempt,
    "vote": Vote,
    "ending": Ending,
    "attestation": Attestation,
}


class _Reported(Exception):  # noqa: N818 (it is no error: it carries what the validator reports)
    """The first problem of a stream."""

    def __init__(self, problem: Answer) -> None:
        super().__init__(problem["message"])
        self.problem = problem


def _bits(text: str, dtype: str) -> Bits:
    return np.frombuffer(bytes.fromhex(text), known(DTYPES, dtype).storage).copy()


def _names(request: Request) -> Answer:
    pattern, index = split_name(request["name"])
    return {"pattern": pattern, "index": index}


def _canonical(request: Request) -> Answer:
    try:
        text = bytes.fromhex(request["json"]).decode()
        form = canonical_bytes(json.loads(text, parse_constant=no_number))
    except (DeltastoreError, ValueError, RecursionError) as error:
        raise CorruptError("bad_json", str(error), rule="DS010") from None
    return {"canonical": form.hex(), "sha256": hashlib.sha256(form).hexdigest()}


def _table(request: Request) -> Answer:
    table = TensorTable.from_bytes(bytes.fromhex(request["object"]), "table")
    return {
        "tensors": [[name, *place] for name, place in table.places.items()],
        "chunks": [[number, len(array.grid)] for number, array in enumerate(table.arrays)],
        "slabs": [[array, chunk, slab] for slab, array, chunk in table.chunk_order().tolist()],
    }


def _digest(request: Request) -> Answer:
    bits = _bits(request["bits"], request["dtype"])
    return {"digest": digest_text(digest_range(bits, request["first"], tensor_seed(request["tensor"])))}


def _patch(request: Request) -> Answer:
    bits = _bits(request["base"], request["dtype"])
    data, dtype = memoryview(bytes.fromhex(request["patch"])), known(DTYPES, request["dtype"])
    patch = decode_patch(data, request["encoding"], dtype, request["elements"], "patch")
    patch.apply(bits, "patch")
    return {"result": bits.tobytes().hex(), "count": len(patch.positions)}


def _encode(request: Request) -> Answer:
    dtype = known(DTYPES, request["dtype"])
    old, new = (_bits(request[member], request["dtype"]) for member in ("base", "result"))
    at = np.flatnonzero(old != new).astype(np.uint32)
    patch = encode_patch(dtype, len(old), at, old[at], new[at], new)
    return {"patch": patch.data.hex(), "encoding": int(patch.encoding), "count": patch.count}


def _pack(request: Request) -> Answer:
    table = TensorTable.from_bytes(bytes.fromhex(request["table"]), "table")
    data = bytes.fromhex(request["pack"])
    index = PackIndex.parse(data, table, "pack")
    if int(index.offsets[-1]) != len(data):
        # Where a pack is fetched, its length is compared with its entry in the manifest.
        raise CorruptError("bad_index", "the pack has another size than its index says", rule="DS040")
    rows = []
    for _, row, start, end in index.patches():
        index.read_patch(row, memoryview(data)[start:end], table)
        numbers = [int(row[member]) for member in ("array", "chunk", "length", "count", "encoding")]
        rows.append([*numbers, digest_text(int(row["difference"])), start])
    return {"sha256": hashlib.sha256(data).hexdigest(), "rows": rows}


def _record(request: Request) -> Answer:
    return {"kind": parse_record(bytes.fromhex(request["object"]), request["slot"]).kind}


def _inventory(request: Request) -> Answer:
    objects = Inventory.from_bytes(bytes.fromhex(request["object"]), "inventory").objects
    return {"objects": len(objects), "bytes": sum(entry.bytes for entry in objects)}


def _word(request: Request) -> Answer:
    return {"kind": known(KINDS, request["kind"]).from_bytes(bytes.fromhex(request["object"]), "word").kind}


def _layout(request: Request) -> Answer:
    layout = LayoutObject.from_bytes(bytes.fromhex(request["object"]), "layout").layout()
    return {"memory": {param.name: _memory(layout, param.name) for param in layout.params}}


def _memory(layout: Layout, name: str) -> list[list[Any] | None]:
    """Of every element of a parameter, row-major: (tensor, row-major index in it), null in a hole."""
    param = layout.forms[name]
    held = np.full((2, param.elements), -1, np.int64)
    tensors = list(layout.specs)
    for piece in layout.of_param.get(name, ()):
        shape = layout.specs[piece.tensor].shape
        whole = np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.int64).reshape(shape)
        box = whole[tuple(slice(low, low + size) for low, size in zip(piece.lo, piece.size, strict=True))]
        piece.view_of(held[0].reshape(param.form))[...] = tensors.index(piece.tensor)
        piece.view_of(held[1].reshape(param.form))[...] = box
    return [None if tensor < 0 else [tensors[tensor], at] for tensor, at in held.T.tolist()]


def _stream(request: Request) -> Answer:
    return asyncio.run(_read(Path(request["path"]), request["version"]))


async def _read(folder: Path, version: int | None) -> Answer:
    """A version as an engine gets it: written into tensors in memory."""
    async with await AsyncStream.open(LocalStore(folder)) as stream:
        manifest = await (stream.newest() if version is None else stream.manifest(version))
        table = await read_table(stream.store, manifest.table)
        specs = list(table.tensors())
        tensors = {spec.name: np.zeros(spec.shape, LIVE_TYPES[spec.dtype.name]) for spec in specs}
        await (await stream.reader(tensors)).sync(manifest.version)
    found = {
        spec.name: {
            "dtype": spec.dtype.name,
            "shape": spec.shape,
            "sha256": hashlib.sha256(tensors[spec.name].tobytes()).hexdigest(),
        }
        for spec in specs
    }
    return {"version": manifest.version, "digest": manifest.digest, "tensors": found}


def _check(request: Request) -> Answer:
    report = asyncio.run(validate(LocalStore(Path(request["path"])), level=Level.DEEP))
    for first in report.problems:
        problem = {"code": first.code, "check": first.check, "where": first.where}
        raise _Reported({**problem, "message": first.message})
    return {"versions": report.versions}


OPERATIONS: dict[str, Operation] = {
    "names": _names,
    "canonical": _canonical,
    "table": _table,
    "digest": _digest,
    "patch": _patch,
    "encode": _encode,
    "pack": _pack,
    "record": _record,
    "inventory": _inventory,
    "word": _word,
    "layout": _layout,
    "stream": _stream,
    "check": _check,
}


def refusal(error: Exception) -> Answer | None:
    """What is refused, in the words of the protocol."""
    if isinstance(error, _Reported):
        found = error.problem
    elif isinstance(error, DeltastoreError):
        found = {"code": error.code, "check": error.rule, "where": error.where, "message": str(error)}
    else:
        return None
    return {name: value for name, value in found.items() if value is not None}


if __name__ == "__main__":
    sys.exit(answer(OPERATIONS, refusal, sys.stdin.buffer, sys.stdout.buffer))
