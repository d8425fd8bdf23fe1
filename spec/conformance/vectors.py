"""The cases of the vector files."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from spec.conformance.case import Case, Fields, expects, refuses
from spec.decoder.elements import WIDTHS
from spec.decoder.patch import apply_patch, decode_patch
from spec.decoder.refusal import SpecError

VECTORS = Path(__file__).parents[1] / "vectors"


def read(file: str) -> Any:
    """The content of a vector file."""
    return json.loads((VECTORS / file).read_text(encoding="ascii"))


def stored(text: str) -> str:
    """Stored bytes, which vectors write as Latin-1, in hexadecimal."""
    return text.encode("latin-1").hex()


def bits_of(bits: Any, elements: int) -> str:
    """Bits, which vectors of large chunks write as a fill and what differs from it."""
    if isinstance(bits, str):
        return bits
    found = [bits["fill"]] * elements
    for at, one in bits["except"]:
        found[at] = one
    return "".join(found)


def _names(row: Fields) -> tuple[Fields, Fields]:
    return {"name": row["name"]}, {"pattern": row["pattern"], "index": row["index"]}


def _canonical(row: Fields) -> tuple[Fields, Fields]:
    request = {"json": row["json"].encode().hex()}
    if "code" in row:
        return request, {}
    return request, {"canonical": stored(row["canonical"]), "sha256": row["sha256"]}


def _table(row: Fields) -> tuple[Fields, Fields]:
    return {"object": stored(row["text"])}, {name: row.get(name) for name in ("tensors", "chunks", "slabs")}


def _digest(row: Fields) -> tuple[Fields, Fields]:
    return {name: row[name] for name in ("tensor", "dtype", "first", "bits")}, {"digest": row["digest"]}


def _patch(row: Fields) -> tuple[Fields, Fields]:
    request = {name: row[name] for name in ("dtype", "elements", "encoding", "patch")}
    request["base"] = bits_of(row["base"], row["elements"])
    if "code" in row:
        return request, {}
    return request, {"result": bits_of(row["result"], row["elements"]), "count": row["count"]}


def _pack(row: Fields) -> tuple[Fields, Fields]:
    expected = {name: row.get(name) for name in ("sha256", "rows")}
    return {"table": stored(row["table"]), "pack": row["pack"]}, expected


def _record(row: Fields) -> tuple[Fields, Fields]:
    return {"slot": row["slot"], "object": stored(row["text"])}, {"kind": row.get("kind")}


def _inventory(row: Fields) -> tuple[Fields, Fields]:
    return {"object": stored(row["text"])}, {name: row.get(name) for name in ("objects", "bytes")}


def _word(row: Fields) -> tuple[Fields, Fields]:
    return {"kind": row["kind"], "object": stored(row["text"])}, {"kind": row["kind"]}


def _layout(row: Fields) -> tuple[Fields, Fields]:
    return {"object": stored(row["text"])}, {"memory": row.get("memory")}


FILES: dict[str, tuple[str, Callable[[Fields], tuple[Fields, Fields]]]] = {
    "names.json": ("names", _names),
    "canonical.json": ("canonical", _canonical),
    "table.json": ("table", _table),
    "digest.json": ("digest", _digest),
    "patch.json": ("patch", _patch),
    "large.json": ("patch", _patch),
    "pack.json": ("pack", _pack),
    "record.json": ("record", _record),
    "inventory.json": ("inventory", _inventory),
    "votes.json": ("word", _word),
    "layout.json": ("layout", _layout),
}
"""The operation of each file, and what makes a request and the expected answer of one of its rows."""


def cases() -> Iterator[Case]:
    """One case for every row of every file, and for every good patch one more over its own result."""
    for file, (operation, made) in FILES.items():
        content = read(file)
        groups = content if isinstance(content, dict) else {"ok": content}
        for row in groups["ok"]:
            request, expected = made(row)
            asked = {"op": operation, **request}
            unordered = ("tensors", "chunks", "slabs") if operation == "table" else ()
            judge = expects(expected, unordered=unordered)
            name = str(row.get("name") or row.get("tensor"))
            yield Case(file, name, asked, judge)
            if operation == "patch":
                yield Case(file, f"{name}, applied again", asked | {"base": expected["result"]}, judge)
        for row in groups.get("err", ()):
            request, _ = made(row)
            yield Case(file, row["name"], {"op": operation, **request}, refuses(row))


def encodings() -> Iterator[Case]:
    """What a writer makes of the changes of every good patch; any patch will do that says them."""
    for row in read("patch.json")["ok"]:
        if row["base"] != row["result"]:
            request = {name: row[name] for name in ("dtype", "elements", "base", "result")}
            yield Case("encode", row["name"], {"op": "encode", **request}, _says(row))


def _says(row: Fields) -> Callable[[Fields], str | None]:
    dtype, elements = row["dtype"], row["elements"]
    width = WIDTHS[dtype] // 8

    def judge(reply: Fields) -> str | None:
        answer = reply.get("ok")
        try:
            patch, encoding = bytes.fromhex(answer["patch"]), answer["encoding"]  # type: ignore[index]
        except (TypeError, KeyError, ValueError):
            return f"expected patch and encoding, got {reply!r:.200}"
        if len(patch) > 2 * elements * width + 256 or len(patch) % 4:
            return f"a patch of {len(patch)} bytes (DS041, DS043)"
        try:
            runs = decode_patch(patch, dtype, elements, encoding)
            for base in (row["base"], row["result"]):
                old = np.frombuffer(bytes.fromhex(base), f"<u{width}").astype(np.uint64)
                new = apply_patch(runs, dtype, old).astype(f"<u{width}").tobytes().hex()
                if new != row["result"]:
                    over = "the base" if base == row["base"] else "its own result"
                    return f"the patch does not give the result over {over}"
        except SpecError as error:
            return f"a patch that is refused: {error}"
        return None

    return judge
