"""A pack in words: header, rows, runs, bytes and bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from deltastore.cli.aligned import columns
from deltastore.cli.wording import plain, plural, size

__all__ = ["pack_lines"]

_LINE: Final = 16
"""Bytes on a line of a hex dump."""


def pack_lines(facts: Mapping[str, Any]) -> Iterator[str]:
    """Everything that was asked for of a pack."""
    yield from _header(facts)
    if facts.get("rows"):
        yield from _rows(facts)
    for patch in facts.get("patches", []):
        yield from _patch(patch)
    if facts.get("entropy"):
        yield from _entropy(facts["entropy"])


def _header(facts: Mapping[str, Any]) -> Iterator[str]:
    if "header" not in facts:
        return
    head, index = facts["header"], facts.get("index", {})
    odd = [f"{name} {head[name]}" for name in ("magic", "flags", "reserved") if _odd(name, head[name])]
    yield _fact("header", ", ".join([f"format {head['format']}, version {head['version']}", *odd]))
    yield _fact("nonce", head["nonce"])
    rows = plural(head["rows"], "row")
    if index and index["rows"] != head["rows"]:
        rows += f", of which {index['rows']:,} are there"
    yield _fact("index", f"{rows}; patches of {size(head['patch_bytes'])}")
    if index:
        raw = f", {index['raw']:,} raw" if index["raw"] else ""
        yield _fact(
            "writes", f"{plural(index['written'], 'element')}{raw}; digest difference {index['difference']}"
        )
    if "sha256" in facts:
        yield _fact("sha256", facts["sha256"])
    if "sound_patches" in facts:
        yield _fact("checked", f"{plural(facts['sound_patches'], 'patch', 'patches')} without a fault")
    elif "hashed_patches" in facts:
        yield _fact("hashes", f"{plural(facts['hashed_patches'], 'patch', 'patches')} with a good hash")
    elif not facts.get("patches"):
        yield _fact("patches", "not read: --check reads all, --row N one of them")


def _odd(name: str, value: Any) -> bool:
    usual = {"magic": "9344535041434b0a", "flags": 0, "reserved": "0" * 32}
    return bool(value != usual[name])


def _rows(facts: Mapping[str, Any]) -> Iterator[str]:
    named = "pattern" in facts["rows"][0]
    heads = ["row", "array", "chunk", "offset", "length", "count", "encoding", "difference", "check"]
    if named:
        heads = [
            "row",
            "slab",
            "array",
            "chunk",
            "offset",
            "length",
            "count",
            "encoding",
            "bits/elem",
            "pattern",
        ]
    cells = [[_cell(row, head) for head in heads] for row in facts["rows"]]
    yield from columns(heads, cells, left=frozenset({"encoding", "difference", "check", "pattern"}))
    more = facts["index"]["matching"] - len(facts["rows"])
    if more > 0:
        yield f"  … {plural(more, 'row')} more: --limit, or choose with --array, --chunk, --row"


def _cell(row: Mapping[str, Any], head: str) -> str:
    if head == "bits/elem":
        return f"{8 * row['length'] / row['count']:.2f}" if row["count"] else "-"
    value = row.get(head, "?")
    if head == "check":
        return str(value)[:12]
    return f"{value:,}" if isinstance(value, int) else plain(value)


def _patch(patch: Mapping[str, Any]) -> Iterator[str]:
    of = f"array {patch['array']}"
    if "pattern" in patch:
        box = f"{'×'.join(map(str, patch['size'])) or '1'} from {'×'.join(map(str, patch['start'])) or '0'}"
        of = f"{plain(' … '.join(patch['tensors']))}, {box}"
    yield f"row {patch['row']}: chunk {patch['chunk']} of {of}"
    elements = "" if patch["elements"] is None else f" of {patch['elements']:,}"
    where = f"bytes {patch['offset']:,} to {patch['offset'] + patch['length']:,}"
    yield _fact("patch", f"{patch['count']:,}{elements} elements, {patch['encoding']}, {where}")
    if patch["runs"]:
        heads = ("run", "w", "L", "k", "low", "high", "residues", "bytes", "bits/elem")
        yield from columns(heads, [_run(run) for run in patch["runs"]])
    for section in patch.get("sections", []):
        yield from _section(section)


def _run(run: Mapping[str, Any]) -> list[str]:
    parts = ["?" if run[name] is None else f"{run[name]['bytes']:,}" for name in ("low", "high", "residues")]
    total = run["bytes"]
    each = "?" if total is None or not run["count"] else f"{8 * total / run['count']:.2f}"
    return [
        *(str(run["run"]), str(run["width"]), str(run["low_bits"]), f"{run['count']:,}"),
        *(*parts, "?" if total is None else f"{total:,}", each),
    ]


def _section(section: Mapping[str, Any]) -> Iterator[str]:
    data, used = bytes.fromhex(section["hex"]), section["bits"]
    bits = "" if used is None else f", {used:,} bits used"
    yield f"  {section['name']}: {len(data):,} bytes at {section['offset']:,}{bits}"
    for at in range(0, len(data), _LINE):
        line = data[at : at + _LINE]
        yield f"    {section['offset'] + at:08x}  {line.hex(' ')}"


def _entropy(lines: list[dict[str, Any]]) -> Iterator[str]:
    yield "  bits per changed element, beside the entropy of positions and of ordered-integer steps"
    heads = ("width", "elements", "bytes", "stored", "positions", "steps", "bound", "ratio")
    yield from columns(heads, [_bound(line) for line in lines])


def _bound(line: Mapping[str, Any]) -> list[str]:
    steps, positions, ratio = line["step_entropy"], line["position_entropy"], line["over_bound"]
    return [
        *(line["width"], f"{line['elements']:,}", f"{line['bytes']:,}", f"{line['bits_per_element']:.2f}"),
        *(f"{positions:.2f}", "?" if steps is None else f"{steps:.2f}"),
        *("?" if steps is None else f"{positions + steps:.2f}", "-" if ratio is None else f"{ratio:.3f}"),
    ]


def _fact(name: str, value: str) -> str:
    return f"  {name:<9} {value}"
