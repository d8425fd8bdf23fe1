"""What an attack is, and how each is put to every way that reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from deltastore.format.records import record_key
from deltastore.stores.base import Store
from deltastore.validate import CHECKS, Level
from tests.doubles.stores import contents, copied

from .resealing import Fields, Objects, Rewriting, compact, resealed
from .victim import victim
from .ways import FOLLOWERS, PRODUCT, Scene, refusal_of

WRITER = frozenset({"writer"})
OLD = FOLLOWERS | WRITER
"""Who does not look at a version that is older than the one it holds."""


@dataclass(frozen=True)
class Attack:
    """``make`` turns the objects of the sound stream into those that the attacker leaves behind.

    Every way that reads ends with one of ``codes`` and ``rules``, and so does validation at ``level``; ways
    in ``passes`` do not reach what was changed, and must read what is right. ``lie`` puts a store of the
    attacker's before the objects. ``either``: a way is refused or reads what is right, as chance has it.
    """

    name: str
    make: Callable[[Objects], Objects]
    codes: frozenset[str]
    rules: frozenset[str]
    level: Level = Level.STRUCTURE
    passes: frozenset[str] = frozenset()
    lie: Callable[[Store], Store] | None = None
    either: bool = False


def attack(
    name: str,
    make: Callable[[Objects], Objects],
    codes: str,
    rules: str,
    *,
    level: Level = Level.STRUCTURE,
    passes: frozenset[str] = frozenset(),
    lie: Callable[[Store], Store] | None = None,
    either: bool = False,
) -> Attack:
    """``codes`` and ``rules`` are separated by spaces."""
    found = frozenset(rules.split())
    assert found <= CHECKS.keys(), name
    return Attack(name, make, frozenset(codes.split()), found, level, passes, lie, either)


async def failures_of(one: Attack, folder: Path, ways: Iterable[str] = PRODUCT) -> list[str]:
    """Every way that did not end as it must, in words."""
    target = await victim()
    objects = one.make(dict(target.objects))
    assert objects != target.objects or one.lie is not None
    wrong = []
    for way in ways:
        if way in _LEVELS and _LEVELS[way] != one.level:
            continue
        inner = await copied(objects)
        store = inner if one.lie is None else one.lie(inner)
        (folder / way).mkdir()
        scene = Scene(target, await copied(target.known), store, folder / way)
        problem = await _problem(one, way, scene)
        after = await contents(inner)
        if way != "writer" and after != objects:
            problem = "it wrote into the store"
        if way == "writer" and {key: after[key] for key in objects} != objects:
            problem = "it changed objects of the store"
        if problem is not None:
            wrong.append(f"{way}: {problem}")
    return wrong


async def _problem(one: Attack, way: str, scene: Scene) -> str | None:
    refusal = await refusal_of(way, scene)
    if refusal is None:
        return None if one.either or way in one.passes else "it was not refused"
    named = refusal.rule in one.rules or (refusal.rule is None and refusal.code in _OTHER_STREAM)
    if refusal.code not in one.codes or not named:
        return f"{refusal.code} {refusal.rule} {refusal.where}: {refusal.message}"
    if "\n" in refusal.message or len(refusal.message) > 700:
        return f"its message is no line: {refusal.message[:900]!r}"
    return "it should not have reached this" if way in one.passes else None


_OTHER_STREAM = ("no_stream", "no_version", "unknown_tensor", "missing_tensor", "wrong_shape", "wrong_dtype")
"""What nobody can tell from a stream that is sound, but shorter, or of another model."""

_LEVELS = {level.name.lower(): level for level in Level}


def rewritten(change: Callable[[Rewriting], None]) -> Callable[[Objects], Objects]:
    """An attack that seals the chain again after what it changes."""

    def make(objects: Objects) -> Objects:
        rewriting = Rewriting(objects)
        change(rewriting)
        return rewriting.done()

    return make


def record_with(slot: int, /, **members: object) -> Callable[[Objects], Objects]:
    """One record with other members, the chain sealed again after it."""

    def change(rewriting: Rewriting) -> None:
        if "parent" in members:
            rewriting.keep_parent(slot)
        rewriting.records[slot].update(members)

    return rewritten(change)


def record_bytes(slot: int, change: Callable[[bytes], bytes]) -> Callable[[Objects], Objects]:
    """The stored bytes of one record changed; nothing is sealed."""
    return lambda objects: {**objects, record_key(slot): change(objects[record_key(slot)])}


def respelled(slot: int, change: Callable[[Fields], bytes]) -> Callable[[Objects], Objects]:
    """One record written otherwise; ``change`` gets its members, and its hash is that of its own spelling."""
    return lambda objects: {**objects, record_key(slot): change(json.loads(objects[record_key(slot)]))}


def sealed(fields: Fields) -> bytes:
    """The bytes of an object with its hash."""
    return compact(resealed(fields))
