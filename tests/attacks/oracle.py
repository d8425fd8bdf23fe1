"""What becomes of a mutant: which level of validation reports it, or why it does no harm.

Where nothing is reported, that must be proved. The decoder of the specification, which shares no code, must
find nothing either. Of bytes that were changed without a hash: no record names
the object, or the log only ends earlier. Of a stream that was sealed again: decoder and product read the
same bits of all versions. Then it is the
same weights under other notes, or another history that is as sound as the first; no rule of a format without
signatures can tell these apart.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deltastore.errors import NotFoundError, UnsupportedError
from deltastore.format.digest import Digester, digest_text
from deltastore.format.records import record_key
from deltastore.layout.weights import chunks_of
from deltastore.log import Log
from deltastore.replay import ReplayedWeights, find_path, read_table
from deltastore.stores.base import Store
from deltastore.stores.memory import MEMORY_STORES, MemoryStore
from deltastore.validate import CHECKS, Level, validate
from spec.decoder import SpecError, check_stream, read_log, read_version
from tests.doubles.models import Bits
from tests.doubles.stores import memory_store

from .damage import Mutant
from .resealing import Objects, named_keys, records_of

LEVELS = tuple(Level)


@dataclass(frozen=True)
class Verdict:
    """``level`` at which it is reported, and the requirement that is broken; or ``harmless``: why it is so.

    ``unproved``: what should not be.
    """

    level: Level | None = None
    check: str | None = None
    harmless: str | None = None
    unproved: str | None = None


@contextmanager
def store_of(objects: Objects) -> Iterator[MemoryStore]:
    """A store with these objects, which goes again."""
    store = memory_store()
    name = store.url.removeprefix("memory://")
    MEMORY_STORES[name].objects.update(objects)
    try:
        yield store
    finally:
        del MEMORY_STORES[name]


class Oracle:
    """Judges mutants; ``folder`` is where the decoder reads them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def judge(self, mutant: Mutant) -> Verdict:
        """Validate it at every level, the lowest first; then ask why nothing was found."""
        with store_of(mutant.objects) as store:
            for level in LEVELS:
                found = await reported(store, level)
                if found is not None:
                    return Verdict(level, found)
            refused = self._refused(mutant.objects)
            if refused is not None:
                return Verdict(unproved=f"nothing reported it, and the decoder refuses it: {refused}")
            harmless = await self._harmless(mutant, store)
            unproved = None if harmless is not None else "nothing reported it, and nothing proves it harmless"
            return Verdict(harmless=harmless, unproved=unproved)

    def _refused(self, objects: Objects) -> str | None:
        """What the decoder has against a stream, if anything."""
        shutil.rmtree(self._folder, ignore_errors=True)
        for key, data in objects.items():
            path = self._folder / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        try:
            check_stream(self._folder)
        except SpecError as error:
            return f"{error.check} {error}"
        return None

    async def _harmless(self, mutant: Mutant, store: Store) -> str | None:
        before = mutant.sample.objects
        if mutant.objects == before:
            return "the same bytes"
        named = named_keys(before)
        changed = {key for key in {**before, **mutant.objects} if before.get(key) != mutant.objects.get(key)}
        if not changed & named:
            return "no record names it"
        if not mutant.resealed:
            shorter = _is_shorter(before, mutant.objects, changed)
            return "the log ends earlier" if shorter else None
        return await self._consistent(mutant, store)

    async def _consistent(self, mutant: Mutant, store: Store) -> str | None:
        """Whether decoder and product read the same bits of all versions, and whose they are."""
        same = True
        versions = list(read_log(self._folder).manifests)
        for version in versions:
            manifest, decoded = read_version(self._folder, version)
            replayed, digest = await weights_of(store, version)
            if digest != manifest["digest"] or decoded.keys() != replayed.keys():
                return None
            for name, (_, bits) in decoded.items():
                if not np.array_equal(bits.reshape(-1), replayed[name].reshape(-1).astype(np.uint64)):
                    return None
            same = same and _equal(replayed, mutant.sample.history.get(version))
        same = same and versions == list(mutant.sample.history)
        return "the same weights" if same else "another sound history"


async def reported(store: Store, level: Level) -> str | None:
    """The requirement that the first problem breaks; None where there is no problem."""
    try:
        report = await validate(store, level=level, jobs=1)
    except UnsupportedError as error:
        return error.rule or "DS012"
    except NotFoundError:
        return "DS050"
    if report.ok:
        return None
    assert all(problem.check in CHECKS and "\n" not in problem.message for problem in report.problems)
    return report.problems[0].check


def _is_shorter(before: Objects, after: Objects, changed: set[str]) -> bool:
    """Whether the last records are gone, and nothing has changed that the others name."""
    keys = [record_key(slot) for slot in range(len(records_of(before)))]
    slots = next((slot for slot, key in enumerate(keys) if key not in after), len(keys))
    last = set(keys[slots:])
    kept = {key: data for key, data in before.items() if key not in last}
    return 0 < slots < len(keys) and not last & after.keys() and not changed & named_keys(kept)


async def weights_of(store: Store, version: int) -> tuple[dict[str, Any], str]:
    """The bits of every tensor of a version, by the product, and their digest."""
    log = Log(store)
    manifest = await log.manifest(version)
    table = await read_table(store, manifest.table)
    weights = await ReplayedWeights.open(store, await find_path(log, manifest), table)
    stacked = [np.zeros((array.count, *array.shape), array.element.storage) for array in table.arrays]
    digester, digest = Digester(table), 0
    async for array, _, box, bits in chunks_of(weights):
        digest += digester.chunk(array, box, bits)
        stacked[array][box.slices] = bits
    held = {
        name: stacked[number][member, ...]
        for number, array in enumerate(table.arrays)
        for member, name in enumerate(array.names)
    }
    return held, digest_text(digest)


def _equal(found: dict[str, Any], wanted: Bits | None) -> bool:
    return (
        wanted is not None
        and found.keys() == wanted.keys()
        and all(found[name].tobytes() == wanted[name].tobytes() for name in found)
    )
