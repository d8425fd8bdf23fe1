"""Every hexadecimal string of appendix A, and the examples of sections 6.1 and 7.1, computed anew."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import numpy as np

from spec import decoder

SPEC = (Path(decoder.__file__).parents[1] / "SPEC.md").read_text(encoding="utf-8")
APPENDIX = SPEC.partition("\n## A Worked examples\n")[2]
TABLE, ONE_RUN, NARROW = re.findall(r"```\n(.*?)\n```", APPENDIX, re.DOTALL)


def example(title: str) -> str:
    """The text of an example, to the title of the next."""
    found = re.search(rf"\*\*{title}\.\*\*(.*?)(?=\n\*\*|\Z)", APPENDIX, re.DOTALL)
    assert found is not None
    return found[1]


def bytes_of(block: str) -> bytes:
    """The bytes at the starts of the lines of a code block."""
    lines = [re.match(r"(?:[0-9A-F]{2} ?)*", line) for line in block.splitlines()]
    return bytes.fromhex("".join(line[0] for line in lines if line is not None))


def u64(*values: int) -> decoder.U64:
    """Unsigned integers."""
    return np.array(values, dtype=np.uint64)


def signed(value: int) -> int:
    """An ordered integer of BF16 as a signed number."""
    return value - 2**16 if value >= 2**15 else value


def o(bits: int) -> int:
    """The ordered integer of BF16 bits, modulo 2^16."""
    return int(decoder.ordered(u64(bits), "BF16")[0])


def section(numbers: list[int], width: int) -> bytes:
    """A bit section that holds numbers of `width` bits."""
    joined = sum(number << width * place for place, number in enumerate(numbers))
    return joined.to_bytes(-(-len(numbers) * width // 32) * 4, "little")


def one_run(changes: dict[int, int], n: int, width: int, low_bits: int) -> bytes:
    """SPEC 9.1: a patch of one run; changes are new BF16 bits by position."""
    positions = sorted(changes)
    high = [0] * (len(positions) + ((n - 1) >> low_bits))
    for place, position in enumerate(positions):
        high[(position >> low_bits) + place] = 1
    return (
        (1).to_bytes(4, "little")
        + bytes([width, low_bits, 0, 0])
        + len(positions).to_bytes(4, "little")
        + section([position % 2**low_bits for position in positions], low_bits)
        + section(high, 1)
        + section([o(changes[position]) % 2**width for position in positions], width)
    )


def plain_grid(stacked: list[int]) -> list[int]:
    """SPEC 7.2: whole axes from the last on, the first that does not fit in nearly equal parts, then 1."""
    chunk: list[int] = []
    room = 2**20
    for extent in reversed(stacked):
        parts = -(-extent // room) if room else extent
        chunk.append(-(-extent // parts) if room else 1)
        room = room // chunk[-1] if parts == 1 else 0
    return chunk[::-1]


def table_of(tensors: dict[str, list[int]]) -> bytes:
    """SPEC 7: the table of BF16 tensors under the plain grid, without slabs."""
    groups: dict[tuple[str, int, tuple[int, ...]], list[tuple[int, ...]]] = {}
    for name, shape in tensors.items():
        pattern, indexes = decoder.split_name(name)
        groups.setdefault((pattern, len(indexes), tuple(shape)), []).append(indexes)
    arrays: list[dict[str, Any]] = []
    for (pattern, _, extents), tuples in sorted(groups.items()):
        arrays.append({"pattern": pattern, "dtype": "BF16", "shape": list(extents)})
        arrays[-1]["members"] = decoder.boxes(sorted(tuples))
        arrays[-1]["chunk"] = plain_grid([len(tuples), *extents])
        arrays[-1]["slab"] = {"by": "common", "of": 0, "count": 0}
    body = {"format": 1, "kind": "table", "slabs": 0, "arrays": arrays}
    return decoder.canonical(body | {"sha256": hashlib.sha256(decoder.canonical(body)).hexdigest()})


def test_ordered_integers_of_section_6() -> None:
    found = re.findall(r"`o\(0x([0-9A-F]{4})\) = (−?)(\w+)`", SPEC)
    assert len(found) == 4
    for bits, minus, value in found:
        assert signed(o(int(bits, 16))) == int(value, 0) * (-1 if minus else 1)


def test_names_of_section_7() -> None:
    text = SPEC.partition("### 7.1")[2].partition("### 7.2")[0]
    found = re.search(r"`([^`]*)` is\s+pattern `([^`]*)` with \((\d+), (\d+)\); `([^`]*)` is its own", text)
    assert found is not None
    assert decoder.split_name(found[1]) == (found[2], (int(found[3]), int(found[4])))
    assert decoder.split_name(found[5]) == (found[5], ())


def test_names() -> None:
    text = example("Names")
    name, pattern, *_ = re.findall(r"`([^`]*)`", text)
    first, second = map(int, re.findall(r"\((\d+), (\d+)\)\.", text)[0])
    assert decoder.split_name(name) == (pattern, (first, second))
    assert decoder.join_name(pattern, (first, second)) == name


def test_table() -> None:
    text = example("Names")
    layers = re.findall(r"`(layers\.\d+\.w)`", text.partition("of shape")[0])
    assert len(layers) == 3
    assert re.search(r"of shape \(4, 4\)", text)
    assert re.search(r"`norm` of shape \(8\)", text)
    assert table_of({name: [4, 4] for name in layers} | {"norm": [8]}).decode() == TABLE
    table = decoder.decode_table(TABLE.encode())
    member = re.search(r"member (\d+) is\s+`([^`]*)`", text)
    assert member is not None
    assert table.arrays[0].names()[int(member[1])] == member[2]
    assert f"`{str(table.arrays[0].members).replace(' ', '')}`" in text


def test_digest() -> None:
    text = example("Digest")
    mixes = re.findall(r"`mix\((\d+)\) = ([0-9a-f]{16})`", text)
    assert len(mixes) == 2
    for x, value in mixes:
        assert f"{int(decoder.mix(u64(int(x)))[0]):016x}" == value
    entries = re.findall(r"`T\[(\d+)\] = ([0-9a-f]{16})`", text)
    assert len(entries) == 3
    for j, value in entries:
        assert f"{int(decoder.T[int(j)]):016x}" == value
    seed = re.search(r'`seed\("(\w+)"\) = ([0-9a-f]{16})`', text)
    assert seed is not None
    assert f"{decoder.seed(seed[1]):016x}" == seed[2]
    whole = re.search(r"tensor `(\w+)` with bits\s+`([0-9A-F ]+)` has digest `([0-9a-f]{16})`", text)
    assert whole is not None
    bits = [int(value, 16) for value in whole[2].split()]
    assert f"{decoder.digest(whole[1], u64(*bits)):016x}" == whole[3]
    one = re.search(r"`([0-9A-F]{4})` at index (\d+) of `(\w+)` adds\s+`([0-9a-f]{16})`", text)
    assert one is not None
    assert f"{decoder.digest(one[3], u64(int(one[1], 16)), int(one[2])):016x}" == one[4]


def test_patch_with_one_run() -> None:
    text = example("Patch with one run").partition("```")[0]
    base = re.search(
        r"(\d+) BF16 elements, all `(.{4})` \(1\.0\) but element (\d+), which is `(.{4})`",
        " ".join(text.split()),
    )
    assert base is not None
    n = int(base[1])
    old = np.full(n, int(base[2], 16), dtype=np.uint64)
    old[int(base[3])] = int(base[4], 16)
    changes = {int(at): int(bits, 16) for at, bits in re.findall(r"element (\d+) = `(.{4})`", text)}
    assert len(changes) == 3
    check_patch(ONE_RUN, one_run(changes, n, 16, 0), old, changes)


def test_patch_of_narrow_steps() -> None:
    text = " ".join(example("Patch of narrow steps").partition("```")[0].split())
    n = int(re.findall(r"A chunk of (\d+) BF16", text)[0])
    found = re.findall(r"lement (\d+) (?:goes )?from `(.{4})` to `(.{4})`", text)
    assert len(found) == 3
    old = np.zeros(n, dtype=np.uint64)
    for at, before, _ in found:
        old[int(at)] = int(before, 16)
    changes = {int(at): int(after, 16) for at, _, after in found}
    check_patch(NARROW, one_run(changes, n, 2, 6), old, changes)


def check_patch(block: str, encoded: bytes, old: decoder.U64, changes: dict[int, int]) -> None:
    """The block holds the encoded patch, which makes just these changes, however often it is applied."""
    patch = bytes_of(block)
    assert patch.hex(" ") == encoded.hex(" ")
    expected = old.copy()
    for at, bits in changes.items():
        expected[at] = bits
    runs = decoder.decode_patch(patch, "BF16", len(old), 0)
    new = decoder.apply_patch(runs, "BF16", old)
    assert new.tolist() == expected.tolist()
    assert decoder.apply_patch(runs, "BF16", new).tolist() == expected.tolist()


def test_sections_of_narrow_steps() -> None:
    low = re.search(r"low: ([\d, ]+) in (\d) bits each: ([01 ]+),", NARROW)
    residues = re.search(r"residues mod 4: ([\d, ]+)", NARROW)
    assert low is not None
    assert residues is not None
    assert [f"{int(number):0{low[2]}b}" for number in low[1].split(",")] == low[3].split()
    (run,) = decoder.decode_patch(bytes_of(NARROW), "BF16", 1024, 0)
    assert [int(number) for number in residues[1].split(",")] == run.residues.tolist()
    assert [int(number) for number in low[1].split(",")] == (run.positions % 64).tolist()


def test_decoding_of_narrow_steps() -> None:
    text = " ".join(example("Patch of narrow steps").rpartition("```")[2].split())
    found = re.search(
        r"over `(.{4})`: `\((\d) − o\((.{4})\)\) mod 4 = \(0 − \(−(\d+)\)\) mod 4 = (\d)`, "
        r"so `new = o\(−(\d+) \+ 1\) = (.{4})`. Over `(.{4})` itself: `\((\d) \+ (\d+)\) mod 4 = (\d)`",
        text,
    )
    assert found is not None
    base, residue, again, minus, step, second, new, itself, _, plus, none = found.groups()
    assert base == again
    assert signed(o(int(base, 16))) == -int(minus) == -int(second)
    assert (int(residue) + int(minus)) % 4 == int(step)
    assert o((-int(second) + 1) % 2**16) == int(new, 16)
    assert new == itself
    assert signed(o(int(itself, 16))) == -int(plus)
    assert int(plus) % 4 == int(none)


def test_no_hash_or_digest_of_the_appendix_is_left_out() -> None:
    found = re.findall(r"\b(?:[0-9a-f]{64}|[0-9a-f]{16})\b", APPENDIX)
    digest = example("Digest")
    checked = re.findall(r"= ([0-9a-f]{16})`", digest) + re.findall(
        r"(?:digest|adds)\s+`([0-9a-f]{16})`", digest
    )
    assert len(checked) == 8
    assert sorted(found) == sorted([*checked, decoder.decode_table(TABLE.encode()).sha256])
