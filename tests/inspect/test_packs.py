"""Packs: rows, runs, bytes and bounds against what the product decodes; and how little is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deltastore.entropy import count_bits, position_bits
from deltastore.errors import InputError
from deltastore.format.pack import HEADER_BYTES, PackIndex, index_bytes, pack_key
from deltastore.format.records import DeltaRecord
from deltastore.inspect.found import Inspection, Wanted
from deltastore.inspect.looking import inspect_object
from deltastore.inspect.source import open_source
from deltastore.replay import read_table
from deltastore.stores.base import Store
from deltastore.validate import Level, validate
from tests.doubles.forging import fields_of, forge
from tests.doubles.models import cut_table, small_model
from tests.doubles.stores import contents, memory_store
from tests.doubles.training import Trainer
from tests.format.packing import rows_of, with_patch, with_row
from tests.history.test_stats import manifests_of, ordered

HUGE = (1 << 32) - 1


async def make() -> tuple[Trainer, str]:
    model = small_model()
    trainer = await Trainer.create(memory_store(), model, table=cut_table(model, 100, 2), pack_bytes=1 << 20)
    await trainer.step(60)
    (key,) = [key for key in await contents(trainer.store) if key.startswith("packs/")]
    return trainer, key


async def looked_at(store: Store, key: str, wanted: Wanted | None = None) -> Inspection:
    source = await open_source(f"{store.url}/{key}")
    return await inspect_object(source, wanted)


async def parsed(store: Store, key: str) -> tuple[bytes, PackIndex, Any]:
    data = await store.get(key, limit=1 << 30)
    manifests = await manifests_of(store)
    table = await read_table(store, manifests[1].table)
    return data, PackIndex.parse(data, table, key), table


async def test_rows_are_those_of_the_index() -> None:
    trainer, key = await make()
    _, index, table = await parsed(trainer.store, key)
    found = await looked_at(trainer.store, key, Wanted(limit=1000))
    record = (await manifests_of(trainer.store))[1]
    assert isinstance(record, DeltaRecord)
    assert found.facts["index"]["written"] == record.packs[0].count
    assert int(found.facts["index"]["difference"], 16) == (
        int(record.digest, 16) - int((await manifests_of(trainer.store))[0].digest, 16)
    ) % (1 << 64)
    assert len(found.facts["rows"]) == len(index.rows)
    for facts, (number, row, start, end) in zip(found.facts["rows"], index.patches(), strict=True):
        array = table.arrays[int(row["array"])]
        assert (facts["row"], facts["offset"], facts["length"]) == (number, start, end - start)
        assert (facts["count"], facts["check"]) == (int(row["count"]), bytes(row["check"]).hex())
        assert facts["pattern"] == array.pattern
        assert facts["elements"] == array.grid.box(int(row["chunk"])).elements
        assert facts["tensors"][0] in array.names


async def test_rows_are_chosen() -> None:
    trainer, key = await make()
    _, index, table = await parsed(trainer.store, key)
    every = (await looked_at(trainer.store, key, Wanted(limit=1000))).facts["rows"]
    number = int(index.rows["array"][-1])
    pattern = table.arrays[number].pattern
    mine = [facts for facts in every if facts["array"] == number]
    for text in (str(number), pattern, table.arrays[number].names[-1]):
        found = await looked_at(trainer.store, key, Wanted(array=text, limit=1000))
        assert found.facts["rows"] == mine
        assert found.facts["index"]["matching"] == len(mine)
    chunk = mine[0]["chunk"]
    found = await looked_at(trainer.store, key, Wanted(array=pattern, chunk=chunk))
    assert [facts["chunk"] for facts in found.facts["rows"]] == [chunk]
    assert (await looked_at(trainer.store, key, Wanted(limit=0))).facts["rows"] == []
    with pytest.raises(InputError, match="no array"):
        await looked_at(trainer.store, key, Wanted(array="nothing"))
    with pytest.raises(InputError, match="no row 99"):
        await looked_at(trainer.store, key, Wanted(rows=(99,)))


async def test_runs_and_sections_are_those_of_the_patch() -> None:
    trainer, key = await make()
    data, index, table = await parsed(trainer.store, key)
    rows = tuple(range(len(index.rows)))
    found = await looked_at(trainer.store, key, Wanted(rows=rows, octets=True))
    assert found.problems == []
    for patch, (_, row, start, end) in zip(found.facts["patches"], index.patches(), strict=True):
        sections = patch["sections"]
        assert "".join(section["hex"] for section in sections) == data[start:end].hex()
        assert sections[0]["offset"] == start
        decoded = index.read_patch(row, memoryview(data)[start:end], table)
        assert [(run["width"], run["count"]) for run in patch["runs"]] == [
            (run.width, len(run.positions)) for run in decoded.runs
        ]
        for run in patch["runs"]:
            parts = [run[name] for name in ("low", "high", "residues")]
            assert run["bytes"] == 8 + sum(part["bytes"] for part in parts)
            assert parts[1]["offset"] == parts[0]["offset"] + parts[0]["bytes"]


async def test_the_entropy_report_is_what_is_counted_by_hand() -> None:
    trainer, key = await make()
    data, index, table = await parsed(trainer.store, key)
    found = await looked_at(trainer.store, key, Wanted(entropy=True))
    lines = {line["width"]: line for line in found.facts["entropy"]}
    positions: dict[str, float] = {}
    steps: dict[str, list[int]] = {}
    together = 0.0
    for _, row, start, end in index.patches():
        array = table.arrays[int(row["array"])]
        box = array.grid.box(int(row["chunk"]))
        names = array.names[box.start[0] : box.start[0] + box.size[0]]
        old, new = (
            np.stack([trainer.history[version][name][box.slices[1:]] for name in names]).reshape(-1)
            for version in (0, 1)
        )
        decoded = index.read_patch(row, memoryview(data)[start:end], table)
        parts = [(str(run.width), run.positions) for run in decoded.runs]
        if decoded.raw is not None:
            parts = [("raw", np.flatnonzero(old != new).astype(np.uint32))]
        whole = 0
        for width, mine in parts:
            positions[width] = positions.get(width, 0.0) + position_bits(box.elements, len(mine))
            whole += len(mine)
            bits, floating = array.element.bits, array.element.floating
            for before, after in zip(old[mine].tolist(), new[mine].tolist(), strict=True):
                step = (ordered(after, bits, floating) - ordered(before, bits, floating)) % (1 << bits)
                steps.setdefault(width, []).append(step - (step >> (bits - 1) << bits))
        together += position_bits(box.elements, whole)
    assert set(lines) == {*steps, "all"}
    for width, taken in steps.items():
        line = lines[width]
        assert line["elements"] == len(taken)
        assert line["position_entropy"] == pytest.approx(positions[width] / len(taken), abs=1e-3)
        assert line["step_entropy"] == pytest.approx(
            count_bits(Counter(taken).values()) / len(taken), abs=1e-3
        )
    every = [step for taken in steps.values() for step in taken]
    assert lines["all"]["bytes"] == len(data) - index_bytes(len(index.rows))
    assert lines["all"]["position_entropy"] == pytest.approx(together / len(every), abs=1e-3)
    expected = count_bits(Counter(every).values()) / len(every)
    assert lines["all"]["step_entropy"] == pytest.approx(expected, abs=1e-3)


async def test_only_header_and_index_are_read(tmp_path: Path) -> None:
    trainer, key = await make()
    data, index, _ = await parsed(trainer.store, key)
    path = tmp_path / "big.pack"
    path.write_bytes(data)
    source = await open_source(str(path))
    read: list[tuple[int, int]] = []
    fetch = source.read

    async def watched(start: int, length: int) -> bytes:
        got = await fetch(start, length)
        read.append((start, start + len(got)))
        return got

    source.read = watched  # type: ignore[method-assign]
    await inspect_object(source)
    assert max(end for _, end in read) == index_bytes(len(index.rows))
    read.clear()
    await inspect_object(source, Wanted(rows=(1,)))
    beyond = [span for span in read if span[1] > index_bytes(len(index.rows))]
    assert beyond == [(int(index.offsets[1]), int(index.offsets[2]))]


def twice(data: bytes) -> bytes:
    """The second row names the chunk of the first."""
    first = rows_of(data)[0]
    return with_row(data, 1, array=int(first["array"]), chunk=int(first["chunk"]), count=1, encoding=0)


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str, str]] = {
    "flags": (lambda data: data[:10] + b"\x01" + data[11:], "bad_index", "DS040"),
    "rows": (lambda data: data[:12] + bytes([255] * 4) + data[16:], "bad_index", "DS040"),
    "array": (lambda data: with_row(data, 0, array=HUGE), "bad_index", "DS041"),
    "chunk": (lambda data: with_row(data, 0, chunk=HUGE), "bad_index", "DS041"),
    "count": (lambda data: with_row(data, 0, count=0), "bad_index", "DS041"),
    "encoding": (lambda data: with_row(data, 0, encoding=7), "bad_index", "DS041"),
    "order": (twice, "bad_index", "DS042"),
    "body": (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "bad_hash", "DS061"),
    "patch": (lambda data: with_patch(data, 0, bytes(8)), "bad_length", "DS061"),
}


@pytest.mark.parametrize("name", DAMAGE)
async def test_damage_is_named_and_the_rest_is_shown(name: str) -> None:
    trainer, key = await make()
    damage, code, rule = DAMAGE[name]
    data = damage(await trainer.store.get(key, limit=1 << 30))
    await trainer.store.put(key, data)
    found = await looked_at(trainer.store, key, Wanted(check=True, rows=(0,), octets=True))
    assert found.facts["header"]["version"] == 1
    assert found.facts["rows"][0]["row"] == 0
    said = {(problem.code, problem.rule) for problem in found.problems}
    assert (code, rule) in said
    assert found.facts["patches"][0]["sections"]


async def test_header_fields_are_named_where_they_stand() -> None:
    trainer, key = await make()
    data = await trainer.store.get(key, limit=1 << 30)
    for at, field in ((8, 8), (10, 10), (50, 48)):
        await trainer.store.put(key, data[:at] + b"\0" * (at == 8) + b"\1" * (at != 8) + data[at + 1 :])
        problems = (await looked_at(trainer.store, key)).problems
        assert {one.offset for one in problems} == {field}
        assert [one.code for one in problems if one.rule == "DS040"] == ["bad_index"]
    await trainer.store.put(key, data[:40] + b"\xff" * 8 + data[48:])
    problems = (await looked_at(trainer.store, key)).problems
    assert [one.offset for one in problems if one.rule == "DS040"] == [40]


async def test_a_pack_that_its_version_does_not_name() -> None:
    trainer, key = await make()
    data = bytearray(await trainer.store.get(key, limit=1 << 30))
    other = pack_key(1, sha256(data).hexdigest()[::-1])
    await trainer.store.put(other, bytes(data))
    found = await looked_at(trainer.store, other, Wanted(check=True))
    assert "named_by" not in found.facts
    assert any("no record names this pack: version 1" in note for note in found.notes)
    assert [(one.code, one.rule) for one in found.problems] == [("bad_hash", "DS061")]
    assert any("manifest" in what for what in found.not_checked)
    assert "named_by" in (await looked_at(trainer.store, key)).facts


async def test_without_a_table_what_is_not_checked_is_said(tmp_path: Path) -> None:
    trainer, key = await make()
    copy = tmp_path / "copy"
    copy.write_bytes(await trainer.store.get(key, limit=1 << 30))
    source = await open_source(str(copy))
    for wanted in (Wanted(check=True), Wanted(rows=(0,))):
        found = await inspect_object(source, wanted)
        assert any("table" in what for what in found.as_json()["not_checked"])
        assert "sound_patches" not in found.facts
    assert (await inspect_object(source)).not_checked == []


async def test_a_wrong_length_is_said_first_without_reading_all() -> None:
    trainer, key = await make()
    data = await trainer.store.get(key, limit=1 << 30)
    for damaged, code in ((data[:-4], "bad_length"), (data + bytes(4), "too_large")):
        await trainer.store.put(key, damaged)
        first = (await looked_at(trainer.store, key)).problems[0]
        assert (first.code, first.rule, first.offset) == (code, "DS061", None)


async def forge_pack(trainer: Trainer, key: str, damage: Callable[[bytes], bytes], **said: Any) -> str:
    """Another pack in place of the one at ``key``, whose manifest says what is so of it, except ``said``."""
    data = damage(await trainer.store.get(key, limit=1 << 30))
    slot = (await manifests_of(trainer.store))[1].slot
    (entry,) = (await fields_of(trainer.store, slot))["packs"]
    front = data[: index_bytes(said.get("rows", entry["rows"]))]
    hashes = {"sha256": sha256(data).hexdigest(), "index_sha256": sha256(front).hexdigest()}
    entry = {**entry, **hashes, "bytes": len(data), **said}
    await forge(trainer.store, slot, packs=[entry])
    await trainer.store.put(pack_key(1, entry["sha256"]), data)
    return pack_key(1, entry["sha256"])


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize(
    ("damage", "said", "expected"),
    [
        (lambda data: data, {"index_sha256": "0" * 64}, ("bad_hash", "DS061", None)),
        (lambda data: data[:16] + bytes([7]) + data[17:], {}, ("bad_index", "DS061", 16)),
        (lambda data: data, {"count": 2**40}, ("bad_index", "DS061", HEADER_BYTES)),
        (lambda data: data, {"slabs": [1, 1]}, ("bad_index", "DS061", HEADER_BYTES)),
        (lambda data: data, {"rows": 1}, ("bad_index", "DS061", 12)),
        (lambda data: with_row(data, 0, count=0), {}, ("bad_index", "DS041", HEADER_BYTES + 12)),
    ],
    ids=["index hash", "version", "count", "slabs", "rows", "row"],
)
async def test_what_the_manifest_says_otherwise(
    damage: Callable[[bytes], bytes], said: dict[str, Any], expected: tuple[Any, ...], check: bool
) -> None:
    """Only the manifest, or only the index, tells: all hashes above are right."""
    trainer, key = await make()
    key = await forge_pack(trainer, key, damage, **said)
    first = (await looked_at(trainer.store, key, Wanted(check=check))).problems[0]
    assert (first.code, first.rule, first.offset) == expected
    (problem,) = (await validate(trainer.store, level=Level.CONTENT)).problems
    assert (problem.code, problem.check, problem.offset) == expected
