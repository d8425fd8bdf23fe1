"""What a look at an object has found, in words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from deltastore.cli.aligned import columns
from deltastore.cli.inspect_pack_text import pack_lines
from deltastore.cli.wording import moment, plain, plural, size
from deltastore.errors import DeltastoreError
from deltastore.inspect.found import Inspection, Wanted, said_of

__all__ = ["inspection_lines"]

_LONG: Final = 400
"""Characters of a member's value that are shown."""

_CELL: Final = 72
"""And of one in a table: a hash has 64."""

_MOST_COLUMNS: Final = 10


def inspection_lines(found: Inspection, wanted: Wanted) -> Iterator[str]:
    """The object, what it says, what is worth knowing, and what is wrong."""
    yield f"{plain(found.shown)}: {plain(found.kind)}, {size(found.size)}"
    facts = found.facts
    if "named_by" in facts:
        yield _fact("named by", f"version {facts['named_by']['version']}, {facts['named_by']['record']}")
    if found.kind == "pack":
        yield from pack_lines(facts)
    elif found.kind in ("shard", "chunk sums", "anchor metadata"):
        yield from _anchor_part(facts, wanted)
    else:
        yield from _simple(facts, wanted.limit)
    yield from (f"  note: {plain(note)}" for note in found.notes)
    yield from (f"  not checked: {plain(what)}" for what in found.not_checked)
    yield from _problems(found)


def _problems(found: Inspection) -> Iterator[str]:
    if not found.problems:
        return
    yield f"wrong: {plural(len(found.problems), 'problem')}"
    for one in found.problems:
        place = "" if one.offset is None else f" at byte {one.offset:,}"
        tensor = "" if one.tensor is None else f" of {plain(one.tensor)}"
        yield f"  {one.code} {one.rule or '-'}{place}{tensor}: {plain(_short(one, found))}"


def _short(error: DeltastoreError, found: Inspection) -> str:
    """The message: the object's name stands on the first line."""
    said = said_of(error)
    for name in {found.where, found.shown}:
        said = said.removeprefix(f"{name}: ").replace(name, "it")
    return said


def _simple(facts: Mapping[str, Any], limit: int) -> Iterator[str]:
    for name in ("sha256", "content", "names", "first_bytes"):
        if facts.get(name):
            value = facts[name]
            yield _fact(name.replace("_", " "), plain(", ".join(value) if isinstance(value, list) else value))
    if "summary" in facts:
        yield _fact("holds", ", ".join(f"{value:,} {name}" for name, value in facts["summary"].items()))
    if "versions" in facts:
        yield _fact("used by", _versions(facts["versions"]))
    if "arrays" in facts:
        yield from _arrays(facts["arrays"])
        return
    yield from _fields(facts.get("fields"), limit)


def _versions(versions: list[int]) -> str:
    if not versions:
        return "no version"
    return f"{plural(len(versions), 'version')}, {versions[0]} to {versions[-1]}"


def _arrays(arrays: list[dict[str, Any]]) -> Iterator[str]:
    heads = ("array", "dtype", "tensors", "shape", "chunk", "chunks", "slab", "pattern")
    rows = [[plain(_cell(one[head])) for head in heads] for one in arrays]
    yield from columns(heads, rows, left=frozenset({"dtype", "shape", "chunk", "slab", "pattern"}))


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return "×".join(map(str, value)) or "()"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _fields(fields: Any, limit: int) -> Iterator[str]:
    """The members of a JSON object, one a line, long ones cut; then those that are tables."""
    if not isinstance(fields, dict):
        return
    width = max(map(len, fields), default=0)
    tables = [name for name, value in fields.items() if _is_table(value, limit)]
    for name, value in fields.items():
        if name not in tables:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            if name == "time" and type(value) is int:
                text = f"{moment(value)} UTC ({value})"
            cut = (
                text if len(text) <= _LONG else f"{text[:_LONG]}… ({len(text):,} characters; all with --json)"
            )
            yield f"  {plain(name).ljust(width)}  {plain(cut)}"
    for name in tables:
        yield from _table(plain(name), fields[name], limit)


def _is_table(value: Any, limit: int) -> bool:
    """Whether it is a list of objects that have the same few members."""
    some = value[: max(limit, 1)] if isinstance(value, list) else []
    if not some or not all(isinstance(one, dict) for one in some):
        return False
    return 0 < len(some[0]) <= _MOST_COLUMNS and all(one.keys() == some[0].keys() for one in some)


def _table(name: str, value: list[dict[str, Any]], limit: int) -> Iterator[str]:
    yield f"  {name}: {len(value):,}"
    heads = sorted(value[0], key=lambda head: (isinstance(value[0][head], str), head))
    rows = [[plain(_member(one[head])) for head in heads] for one in value[:limit]]
    names = frozenset(head for head in heads if isinstance(value[0][head], str))
    if rows:
        yield from columns([plain(head) for head in heads], rows, left=frozenset(map(plain, names)), indent=4)
    if len(value) > limit:
        yield f"    … {len(value) - limit:,} more: --limit"


def _member(value: Any) -> str:
    if type(value) is int:
        return f"{value:,}"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _CELL else f"{text[: _CELL - 1]}…"


def _anchor_part(facts: Mapping[str, Any], wanted: Wanted) -> Iterator[str]:
    if "array" in facts:
        array = facts["array"]
        yield _fact("array", f"{array['number']}, {plain(array['pattern'])}, {array['dtype']}")
    if "shard" in facts:
        shard = facts["shard"]
        box = f"{_cell(shard['size'])} from {_cell(shard['start'])} over (member, tensor axes)"
        yield _fact("shard", f"{shard['number']}, {box}")
        if "index_offset" in shard:
            at = f"at byte {shard['index_offset']:,}"
            yield _fact(
                "index", f"{shard['index_entries']:,} entries {at}, chunks of {shard['chunk_bytes']:,} bytes"
            )
    if "index" in facts:
        yield _fact("index", f"{facts['index']['entries']:,} entries at byte {facts['index']['offset']:,}")
    if "sha256" in facts:
        yield _fact("sha256", facts["sha256"])
    if "sound_chunks" in facts:
        yield _fact("checked", f"{plural(facts['sound_chunks'], 'chunk')} with a good checksum")
    elif "shard" in facts or "index" in facts:
        yield _fact("chunks", f"{facts.get('chunks', 0):,}, not read: --check or --chunk N does")
    yield from _fields(facts.get("fields"), wanted.limit)
    entries = facts.get("entries", [])
    if entries:
        heads = tuple(entries[0])
        rows = [[plain(_entry(one[head])) for head in heads] for one in entries]
        yield from columns(heads, rows, left=frozenset({"tensors", "start", "size"}))
        more = facts.get("chunks", len(entries)) - len(entries)
        if more > 0 and wanted.chunk is None:
            yield f"  … {more:,} more: --limit"


def _entry(value: Any) -> str:
    if isinstance(value, list):
        if value and isinstance(value[0], str):
            return " … ".join(value)
        return "×".join(map(str, value)) or "()"
    return f"{value:,}"


def _fact(name: str, value: str) -> str:
    return f"  {name:<9} {value}"
