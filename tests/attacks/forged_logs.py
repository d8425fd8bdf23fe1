"""Logs as an attacker writes them: other orders, gaps, repeats, and the records of another stream."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from .damage import Draw, Mutant, pick
from .resealing import Fields, Rewriting, records_of
from .samples import Sample


def reordered_log(rewriting: Rewriting, draw: Draw) -> str | None:
    """Records left out, twice, in another order; each says the slot at which it then stands."""
    count = len(rewriting.records)
    slots = list(range(count))
    one, other = (int(slot) for slot in draw.integers(0, count, 2))
    how = int(draw.integers(4))
    if how == 0:
        del slots[one]
    elif how == 1:
        slots.insert(other, one)
    elif how == 2:
        slots[one], slots[other] = slots[other], slots[one]
    else:
        slots = slots[: one + 1] + slots[one:]
    rewriting.reorder(slots)
    return f"slots {slots}"


def splice(samples: Sequence[Sample], draw: Draw) -> Mutant | None:
    """Records of another stream in the place of the last ones, chained and numbered as if of this one."""
    sample = pick(draw, samples)
    other = pick(draw, [one for one in samples if one is not sample])
    rewriting = Rewriting(sample.objects)
    first = int(draw.integers(1, len(rewriting.records)))
    foreign: list[Fields] = records_of(other.objects)[int(draw.integers(1, 4)) :]
    rewriting.records = [*rewriting.records[:first], *copy.deepcopy(foreign)]
    epoch = newest = 0
    for slot, record in enumerate(rewriting.records):
        epoch += record["kind"] == "epoch"
        record["slot"], record["epoch"] = slot, epoch
        if "version" in record and slot >= first and draw.random() < 0.5:
            record["version"] = max(newest + 1, record["version"])
        newest = record.get("version", newest)
    for key, data in other.objects.items():
        if not key.startswith("log/"):
            rewriting.objects.setdefault(key, data)
    return Mutant(
        "forged splice", sample, f"from slot {first} on {other.name}", rewriting.done(), resealed=True
    )
