"""Versions of a stream with all that they build on, remembered in a few hundred bytes each."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Final

from deltastore.errors import CorruptError, NotFoundError
from deltastore.format.pack import PackIndex
from deltastore.format.records import AnchorRecord, DeltaRecord, record_key
from deltastore.format.table import TensorTable
from deltastore.kernels.rows import ChunkList
from deltastore.log import Log, Manifest
from deltastore.stores.base import Store
from deltastore.validate.chain import Committed
from deltastore.validate.structure import read_again
from deltastore.windows.course import course_of
from deltastore.windows.opening import open_walk, window_bytes
from deltastore.windows.walk import Walk

__all__ = ["EVERY", "Deltas", "Family", "Lineage", "read_lineage"]

EVERY: Final = range(1 << 53)
"""All versions that there can be."""


@dataclass(frozen=True, slots=True)
class Family:
    """An anchor, and deltas that grow from it: ``bases``, version -> the one that it builds on, ascending."""

    anchor: int
    bases: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Lineage:
    """``known`` versions, ascending: those that were ``chosen``, and all below them.

    ``ends``: the first and the last version that were seen in the log.
    """

    store: Store
    known: Mapping[int, Committed]
    chosen: tuple[int, ...]
    ends: tuple[int, int]

    async def record(self, version: int) -> Manifest:
        """The manifest of a version, read again; ``CorruptError`` where it is another than before."""
        return await read_again(self.store, self.known[version])

    def families(self) -> list[Family]:
        """All deltas, by the anchor that they grow from; an anchor alone is no family."""
        root: dict[int, int] = {}
        grown: dict[int, dict[int, int]] = {}
        for version, one in self.known.items():
            root[version] = version if one.base is None else root[one.base]
            if one.base is not None:
                grown.setdefault(root[version], {})[version] = one.base
        return [Family(anchor, bases) for anchor, bases in grown.items()]

    def path(self, version: int) -> Family:
        """The anchor and the deltas that reading a version takes."""
        bases: dict[int, int] = {}
        while (base := self.known[version].base) is not None:
            bases[version] = base
            version = base
        return Family(version, dict(reversed(bases.items())))

    async def walk(self, table: TensorTable, deltas: Deltas, *, chunks: ChunkList | None = None) -> Walk:
        """A walk over the family of ``deltas``; ``close`` it."""
        anchor = await self.record(deltas.family.anchor)
        if not isinstance(anchor, AnchorRecord):
            raise TypeError("a family starts with an anchor")
        nbytes = window_bytes(deltas.course, 1)
        return await open_walk(self.store, table, anchor, deltas.course, deltas, chunks=chunks, nbytes=nbytes)


class Deltas:
    """A family as a walk has its deltas: what is wrong with their records or indexes is raised.

    ``keep``: the weights of versions that nothing builds on are wanted at the end. A version that is unknown
    is a step that changes nothing: the weights of its base are kept apart from those of what grows from it.
    """

    def __init__(self, lineage: Lineage, family: Family, *, keep: bool = False) -> None:
        self.lineage = lineage
        self.family = family
        self.course = course_of(family.anchor, family.bases, keep=keep)

    async def record(self, step: int) -> DeltaRecord | None:
        """The manifest of a step."""
        version = self.course.steps[step].version
        if version not in self.lineage.known:
            return None
        record = await self.lineage.record(version)
        if not isinstance(record, DeltaRecord):
            raise TypeError("what grows from an anchor are deltas")
        return record

    def indexed(self, step: int, index: PackIndex) -> None:
        """Nothing more."""

    def lost(self, step: int, error: CorruptError) -> None:  # noqa: ARG002
        """The family cannot be walked."""
        raise error


async def read_lineage(store: Store, wanted: Container[int] = EVERY, lowest: int = 0) -> Lineage:
    """The versions that are ``wanted``, none below ``lowest``, and all that they build on.

    Reads the log from its end, no farther than it takes, and to its first record where no version is wanted.
    Raises ``NotFoundError`` (``no_stream``, ``no_version``), ``UnsupportedError``, and ``CorruptError``, also
    for versions that do not ascend, and for a base that is not there or has another table.
    """
    log = Log(store)
    known: dict[int, Committed] = {}
    chosen: list[int] = []
    needed: set[int] = set()
    newest = above = None
    async for record in log.backwards(await log.tip()):
        if not isinstance(record, AnchorRecord | DeltaRecord):
            continue
        version = record.version
        if above is not None and version >= above:
            raise _broken("DS054", record_key(record.slot), f"commits version {version} before {above}")
        above = version
        newest = version if newest is None else newest
        if version in wanted:
            chosen.append(version)
        if version in wanted or version in needed:
            one = known[version] = Committed.by(record)
            needed.discard(version)
            needed.update(() if one.base is None else (one.base,))
        if chosen and version <= lowest and not needed:
            break
    if above is None or newest is None:
        message = f"{store.url} has no version yet: wait for the trainer's first one"
        raise NotFoundError("no_version", message, where=store.url)
    for one in known.values():
        _check_base(known, one)
    return Lineage(store, dict(reversed(known.items())), tuple(reversed(chosen)), (above, newest))


def _check_base(known: Mapping[int, Committed], one: Committed) -> None:
    if one.base is None:
        return
    base, where = known.get(one.base), record_key(one.slot)
    if base is None:
        raise _broken("DS055", where, f"rests on version {one.base}, which is not there")
    if base.table != one.table:
        raise _broken("DS060", where, "has another table than its base")


def _broken(rule: str, where: str, problem: str) -> CorruptError:
    return CorruptError("bad_chain", f"{where} {problem}", where=where, rule=rule)
