"""Whatever an attacker leaves behind can be looked at: named errors, and no control characters shown."""

from __future__ import annotations

import json

import pytest

from deltastore.cli.inspect_text import inspection_lines
from deltastore.errors import DeltastoreError
from deltastore.inspect.found import Wanted
from deltastore.inspect.looking import inspect_object
from deltastore.inspect.source import open_source
from deltastore.stores.memory import MEMORY_STORES
from deltastore.validate import CHECKS

from .mutants import in_one_thread
from .oracle import store_of
from .test_attacks import EVERY
from .victim import victim

ASKED = (Wanted(), Wanted(check=True, entropy=True), Wanted(rows=(0,), octets=True))


@pytest.mark.timeout(200)
async def test_every_object_that_an_attacker_changed_can_be_looked_at() -> None:
    target = await victim()
    looked = wrong = 0
    with in_one_thread():
        for one in EVERY:
            objects = one.make(dict(target.objects))
            changed = [key for key, data in objects.items() if target.objects.get(key) != data]
            with store_of(objects) as store:
                for key in changed[:3]:
                    for wanted in ASKED:
                        looked += 1
                        wrong += await _look(f"{store.url}/{key}", wanted, one.name)
            assert store.url.removeprefix("memory://") not in MEMORY_STORES
    assert looked > 500
    assert wrong > 200


async def _look(place: str, wanted: Wanted, name: str) -> bool:
    try:
        found = await inspect_object(await open_source(place), wanted)
    except DeltastoreError:
        return True
    json.dumps(found.as_json())
    lines = list(inspection_lines(found, wanted))
    for line in lines:
        assert line.isprintable(), (name, line)
    for problem in found.problems:
        assert problem.rule in CHECKS, (name, problem)
    return bool(found.problems)
