"""A broken store: a sound one, what is done to it, and what a validator must say of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import accumulate
from typing import Any

from spec.vectors.make.objects import Objects

Fields = dict[str, Any]


@dataclass(frozen=True)
class Broken:
    """``harm`` changes the objects of ``base`` and returns the key at which the harm is found.

    ``level``: that of a validation at which it is found. ``version``: one that no reader may read, or None
    where only a validation has to find the harm. ``links``: keys that become symbolic links to others, or to
    nothing; ``pipes``: that become pipes.
    """

    name: str
    code: str
    check: str
    level: str
    harm: Callable[[Objects], str]
    version: int | None = None
    base: str = "v1-by-hand"
    links: dict[str, str] = field(default_factory=dict)
    pipes: tuple[str, ...] = ()


def edits(
    before: Objects, after: Objects, links: dict[str, str] | None = None, pipes: tuple[str, ...] = ()
) -> list[Fields]:
    """What makes ``after`` of ``before``, in the order of the keys."""
    found: list[Fields] = []
    names = {data: key for key, data in before.items() if len(data) > 64}
    odd: dict[str, Fields] = {key: {"link": link} for key, link in (links or {}).items()}
    odd |= {key: {"pipe": True} for key in pipes}
    for key in sorted({*before, *after, *odd}):
        data = after.get(key)
        if key in odd:
            found.append({"key": key, **odd[key]})
        elif data is None:
            found.append({"key": key, "remove": True})
        elif data != before.get(key):
            spliced = _splices(before.get(key, b""), data)
            found.append({"key": key, **(spliced or _content(data, names.get(data)))})
    return found


def _splices(before: bytes, after: bytes) -> Fields | None:
    """Where bytes of an object are replaced by others, if that says it shorter than all of it would."""
    if not (before.isascii() and after.isascii()) or max(len(before), len(after)) > 5000:
        return None
    old, new = (re.findall(rb"[0-9a-f]{16,}|.", data, re.DOTALL) for data in (before, after))
    starts = [0, *accumulate(map(len, old))]
    found = [
        [starts[first], starts[last] - starts[first], b"".join(new[start:stop]).decode("ascii")]
        for tag, first, last, start, stop in SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        if tag != "equal"
    ]
    return {"splice": found} if sum(20 + len(str(one[2])) for one in found) < len(after) else None


def _content(data: bytes, copied: str | None) -> Fields:
    if copied is not None:
        return {"copy": copied}
    if len(data) > 1000 and not any(data):
        return {"zeros": len(data)}
    if data.isascii() and b"\0" not in data:
        return {"text": data.decode("ascii")}
    return {"hex": data.hex()}
