"""Mutants of bytes alone: of a disk, or of an attacker who computes no hash again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from deltastore.format.records import record_key

from .regions import Region, regions_of
from .resealing import Objects, records_of
from .samples import Sample

Draw = np.random.Generator
Change = dict[str, bytes | None]
Make = Callable[[Draw], "Mutant | None"]

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Mutant:
    """One change of a sample: ``what`` says what was done, a ``kind`` is a row of the table of all.

    ``objects``: all that the store then has.
    """

    kind: str
    sample: Sample
    what: str
    objects: Objects
    resealed: bool = False


def pick(draw: Draw, options: Sequence[_Item]) -> _Item:
    """One of them."""
    return options[int(draw.integers(len(options)))]


def damage_of(samples: Sequence[Sample]) -> dict[str, Make]:
    """How to make a mutant of each kind; of some draws there is none."""
    regions = {sample.name: regions_of(sample.objects) for sample in samples}
    makes: dict[str, Make] = {}
    for what in sorted({what for found in regions.values() for what in found}):
        where = [(sample, regions[sample.name][what]) for sample in samples if what in regions[sample.name]]
        makes[f"flip: {what}"] = partial(_flip, where, what)
    for how, change in _RANGES.items():
        makes[f"bytes: {how}"] = partial(_bytes, samples, how, change)
    for how, move in _MOVES.items():
        makes[f"object: {how}"] = partial(_object, samples, how, move)
    return makes


def _with(sample: Sample, change: Change) -> Objects:
    after = {**sample.objects, **change}
    return {key: data for key, data in after.items() if data is not None}


def _flip(where: list[tuple[Sample, list[Region]]], what: str, draw: Draw) -> Mutant:
    sample, regions = pick(draw, where)
    region = pick(draw, regions)
    at, bit = int(draw.integers(region.start, region.end)), int(draw.integers(8))
    data = sample.objects[region.key]
    flipped = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
    said = f"bit {bit} of byte {at} of {region.key}"
    return Mutant(f"flip: {what}", sample, said, _with(sample, {region.key: flipped}))


def _bytes(
    samples: Sequence[Sample], how: str, change: Callable[[bytes, Draw], bytes], draw: Draw
) -> Mutant | None:
    sample = pick(draw, samples)
    key = pick(draw, sorted(sample.objects))
    changed = change(sample.objects[key], draw)
    if changed == sample.objects[key]:
        return None
    return Mutant(f"bytes: {how}", sample, key, _with(sample, {key: changed}))


def _span(data: bytes, draw: Draw) -> tuple[int, int]:
    start = int(draw.integers(len(data) + 1))
    return start, int(draw.integers(start, len(data) + 1))


def _cut_end(data: bytes, draw: Draw) -> bytes:
    return data[: int(draw.integers(len(data)))] if data else data


def _cut_start(data: bytes, draw: Draw) -> bytes:
    return data[int(draw.integers(len(data))) :] if data else data


def _extend(data: bytes, draw: Draw) -> bytes:
    return data + draw.bytes(int(draw.integers(1, 9)))


def _zero(data: bytes, draw: Draw) -> bytes:
    start, end = _span(data, draw)
    return data[:start] + bytes(end - start) + data[end:]


def _repeat(data: bytes, draw: Draw) -> bytes:
    start, end = _span(data, draw)
    return data[:end] + data[start:]


def _leave_out(data: bytes, draw: Draw) -> bytes:
    start, end = _span(data, draw)
    return data[:start] + data[end:]


def _swap(data: bytes, draw: Draw) -> bytes:
    one, two, three, four = sorted(int(at) for at in draw.integers(0, len(data) + 1, 4))
    return data[:one] + data[three:four] + data[two:three] + data[one:two] + data[four:]


def _overwrite(data: bytes, draw: Draw) -> bytes:
    (start, end), at = _span(data, draw), int(draw.integers(len(data) + 1))
    return (data[:at] + data[start:end] + data[at + end - start :])[: len(data)]


_RANGES: dict[str, Callable[[bytes, Draw], bytes]] = {
    "cut the end": _cut_end,
    "cut the start": _cut_start,
    "extend": _extend,
    "zero a range": _zero,
    "repeat a range": _repeat,
    "leave out a range": _leave_out,
    "swap two ranges": _swap,
    "overwrite a range with another": _overwrite,
}


def _object(
    samples: Sequence[Sample],
    how: str,
    move: Callable[[Sequence[Sample], Sample, Draw], Change],
    draw: Draw,
) -> Mutant | None:
    sample = pick(draw, samples)
    change = move(samples, sample, draw)
    objects = _with(sample, change)
    if objects == sample.objects:
        return None
    said = " and ".join(sorted(change))
    return Mutant(f"object: {how}", sample, said if len(said) < 500 else f"{said[:500]}...", objects)


def _two(sample: Sample, draw: Draw) -> tuple[str, str]:
    keys = sorted(sample.objects)
    return pick(draw, keys), pick(draw, keys)


def _swap_objects(_: Sequence[Sample], sample: Sample, draw: Draw) -> Change:
    one, other = _two(sample, draw)
    return {one: sample.objects[other], other: sample.objects[one]}


def _swap_alike(_: Sequence[Sample], sample: Sample, draw: Draw) -> Change:
    """Two of one room and size, if there are: only their content differs."""
    one = pick(draw, sorted(sample.objects))
    alike = [key for key in sorted(sample.objects) if key.partition("/")[0] == one.partition("/")[0]]
    sized = [key for key in alike if len(sample.objects[key]) == len(sample.objects[one]) and key != one]
    other = pick(draw, sized or alike)
    return {one: sample.objects[other], other: sample.objects[one]}


def _copy_over(_: Sequence[Sample], sample: Sample, draw: Draw) -> Change:
    one, other = _two(sample, draw)
    return {one: sample.objects[other]}


def _delete(_: Sequence[Sample], sample: Sample, draw: Draw) -> Change:
    return {pick(draw, sorted(sample.objects)): None}


def _delete_some(_: Sequence[Sample], sample: Sample, draw: Draw) -> Change:
    keys = sorted(sample.objects)
    return {pick(draw, keys): None for _ in range(int(draw.integers(2, 5)))}


def _end_the_log(_: Sequence[Sample], sample: Sample, draw: Draw) -> Change:
    slots = len(records_of(sample.objects))
    return {record_key(slot): None for slot in range(int(draw.integers(slots)), slots)}


def _new_key(_: Sequence[Sample], sample: Sample, draw: Draw) -> Change:
    """A copy beside an object: in its folder, or with another number or hash."""
    key = pick(draw, sorted(sample.objects))
    digit = int(draw.integers(key.index("/") + 1, len(key)))
    changed = key[:digit] + "7" + key[digit + 1 :] if draw.random() < 0.5 else key + "0"
    return {} if changed in sample.objects else {changed: sample.objects[key]}


def _swap_slots(_: Sequence[Sample], sample: Sample, draw: Draw) -> Change:
    slots = len(records_of(sample.objects))
    one, other = (record_key(int(slot)) for slot in draw.integers(0, slots, 2))
    return {one: sample.objects[other], other: sample.objects[one]}


def _replay(_: Sequence[Sample], sample: Sample, draw: Draw) -> Change:
    slots = len(records_of(sample.objects))
    old = sample.objects[record_key(int(draw.integers(slots)))]
    return {record_key(slots + int(draw.integers(3)) // 2): old}


def _foreign(samples: Sequence[Sample], sample: Sample, draw: Draw) -> Change:
    """An object of the same room of another stream."""
    other = pick(draw, [one for one in samples if one is not sample])
    key = pick(draw, sorted(sample.objects))
    same = [one for one in sorted(other.objects) if one.partition("/")[0] == key.partition("/")[0]]
    return {key: other.objects[pick(draw, same)]} if same else {}


def _another_history(samples: Sequence[Sample], sample: Sample, draw: Draw) -> Change:
    """From some slot on the records of another stream, and all that they name."""
    other = pick(draw, [one for one in samples if one is not sample])
    first = int(draw.integers(1, min(len(records_of(one.objects)) for one in (sample, other))))
    change: Change = dict(other.objects)
    for slot in range(max(len(records_of(one.objects)) for one in (sample, other))):
        key = record_key(slot)
        change[key] = (sample if slot < first else other).objects.get(key)
    return change


_MOVES: dict[str, Callable[[Sequence[Sample], Sample, Draw], Change]] = {
    "swap two": _swap_objects,
    "swap two alike": _swap_alike,
    "copy over another": _copy_over,
    "delete": _delete,
    "delete several": _delete_some,
    "end the log": _end_the_log,
    "copy to a new key": _new_key,
    "swap two slots": _swap_slots,
    "replay a record": _replay,
    "from another stream": _foreign,
    "the log of another stream": _another_history,
}
