"""The decoder as an implementation that ``spec.conformance`` tests: its answer to every operation."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from spec.answering import Operation, answer, known
from spec.decoder.anchor import decode_inventory
from spec.decoder.checking import check_stream
from spec.decoder.digest import digest
from spec.decoder.elements import U64, WIDTHS
from spec.decoder.exchange import WORDS, decode_word
from spec.decoder.json_objects import canonical, check_value, parse_json
from spec.decoder.layout import decode_layout
from spec.decoder.pack import decode_pack
from spec.decoder.patch import apply_patch, decode_patch
from spec.decoder.reading import read_version
from spec.decoder.records import decode_record
from spec.decoder.refusal import SpecError, fail
from spec.decoder.table import decode_table, split_name, stored

Request = dict[str, Any]
Answer = dict[str, Any]


def bits_of(text: str, dtype: str) -> U64:
    """Elements from hexadecimal little-endian bytes."""
    return np.frombuffer(bytes.fromhex(text), f"<u{known(WIDTHS, dtype) // 8}").astype(np.uint64)


def answer_names(request: Request) -> Answer:
    """Pattern and index tuple."""
    pattern, indexes = split_name(request["name"])
    return {"pattern": pattern, "index": indexes}


def answer_canonical(request: Request) -> Answer:
    """The canonical form of a JSON text."""
    try:
        value = parse_json(bytes.fromhex(request["json"]))
    except (ValueError, RecursionError):
        fail("bad_json", "DS010", "not JSON in UTF-8")
    check_value(value, 1)
    try:
        form = canonical(value)
    except UnicodeEncodeError:
        fail("bad_json", "DS010", "a lone surrogate")
    return {"canonical": form.hex(), "sha256": hashlib.sha256(form).hexdigest()}


def answer_table(request: Request) -> Answer:
    """Tensors, numbers of chunks, and slabs."""
    arrays = decode_table(bytes.fromhex(request["object"])).arrays
    grids = [(a, int(np.prod(array.grid(), dtype=object))) for a, array in enumerate(arrays)]
    return {
        "tensors": [(name, a, m) for a, array in enumerate(arrays) for m, name in enumerate(array.names())],
        "chunks": grids,
        "slabs": [(a, chunk, arrays[a].slab_of(chunk)) for a, chunks in grids for chunk in range(chunks)],
    }


def answer_digest(request: Request) -> Answer:
    """The digest of a run of elements."""
    bits = bits_of(request["bits"], request["dtype"])
    return {"digest": f"{digest(request['tensor'], bits, request['first']):016x}"}


def answer_patch(request: Request) -> Answer:
    """The bits after a patch, and how many elements it writes."""
    dtype = request["dtype"]
    patch, base = bytes.fromhex(request["patch"]), bits_of(request["base"], dtype)
    runs = decode_patch(patch, dtype, request["elements"], request["encoding"])
    result = apply_patch(runs, dtype, base)
    raw = result.astype(f"<u{WIDTHS[dtype] // 8}").tobytes()
    return {"result": raw.hex(), "count": sum(len(run.positions) for run in runs)}


def answer_pack(request: Request) -> Answer:
    """The name and the rows of a pack, all of whose patches have been decoded."""
    table = decode_table(bytes.fromhex(request["table"]))
    pack = decode_pack(bytes.fromhex(request["pack"]), table)
    for row in pack.rows:
        pack.runs(row, table.arrays[row.array])
    rows = [
        [row.array, row.chunk, row.length, row.elements, row.encoding, f"{row.difference:016x}", row.offset]
        for row in pack.rows
    ]
    return {"sha256": hashlib.sha256(pack.raw).hexdigest(), "rows": rows}


def answer_record(request: Request) -> Answer:
    """The kind of a record."""
    return {"kind": decode_record(bytes.fromhex(request["object"]), request["slot"])["kind"]}


def answer_inventory(request: Request) -> Answer:
    """Objects of an inventory, and their bytes."""
    sizes = [item["bytes"] for item in decode_inventory(bytes.fromhex(request["object"]))["objects"]]
    return {"objects": len(sizes), "bytes": sum(sizes)}


def answer_word(request: Request) -> Answer:
    """The kind of what a writer says to others."""
    known(WORDS, request["kind"])
    return {"kind": decode_word(bytes.fromhex(request["object"]), request["kind"])["kind"]}


def answer_layout(request: Request) -> Answer:
    """What stands at every element of every parameter."""
    return {"memory": decode_layout(bytes.fromhex(request["object"]))}


def answer_stream(request: Request) -> Answer:
    """What a version holds."""
    manifest, tensors = read_version(Path(request["path"]), request["version"])
    found = {
        name: {
            "dtype": array.dtype,
            "shape": bits.shape,
            "sha256": hashlib.sha256(stored(array, bits)).hexdigest(),
        }
        for name, (array, bits) in tensors.items()
    }
    return {"version": manifest["version"], "digest": manifest["digest"], "tensors": found}


def answer_check(request: Request) -> Answer:
    """That a whole stream is sound."""
    return {"versions": check_stream(Path(request["path"]))}


OPERATIONS: dict[str, Operation] = {
    "names": answer_names,
    "canonical": answer_canonical,
    "table": answer_table,
    "digest": answer_digest,
    "patch": answer_patch,
    "pack": answer_pack,
    "record": answer_record,
    "inventory": answer_inventory,
    "word": answer_word,
    "layout": answer_layout,
    "stream": answer_stream,
    "check": answer_check,
}


def refusal(error: Exception) -> Answer | None:
    """What is refused, in the words of the protocol."""
    if not isinstance(error, SpecError):
        return None
    found = {"code": error.code, "check": error.check, "where": error.where, "message": str(error)}
    return {name: value for name, value in found.items() if value is not None}


def serve(requests: BinaryIO, replies: BinaryIO) -> int:
    """Answer all requests."""
    return answer(OPERATIONS, refusal, requests, replies)
