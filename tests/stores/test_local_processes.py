"""The store in a folder, between processes: races, and deaths at every system call."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deltastore.stores.local import LocalStore

from . import dying_writer, racing_writer
from .operations import keys_of

RACERS = 32


def command(script: object, *arguments: object) -> list[str]:
    return [sys.executable, str(getattr(script, "__file__", script)), *map(str, arguments)]


def environment() -> dict[str, str]:
    """Let a child find deltastore wherever this process did."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


@pytest.mark.timeout(240)
def test_one_of_many_racing_processes_wins(tmp_path: Path) -> None:
    gate, opener = os.pipe()
    racers = [
        subprocess.Popen(
            command(racing_writer, tmp_path / "root", "log/0", number, gate),
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[gate],
            env=environment(),
        )
        for number in range(RACERS)
    ]
    os.close(gate)
    os.close(opener)
    answers = [racer.communicate()[0] for racer in racers]
    assert sorted(answers) == ["False\n"] * (RACERS - 1) + ["True\n"]
    assert {racer.returncode for racer in racers} == {0}
    winner = answers.index("True\n")
    store = LocalStore(tmp_path / "root")
    assert asyncio.run(store.get("log/0", limit=200_000)) == racing_writer.content(winner)
    assert [path.name for path in (tmp_path / "root" / "log").iterdir()] == ["0"]


@pytest.mark.timeout(240)
@pytest.mark.parametrize("method", ["put", "put_if_absent"])
def test_a_writer_may_die_at_any_call(tmp_path: Path, method: str) -> None:
    done = subprocess.run(
        command(dying_writer, tmp_path, method), check=True, capture_output=True, text=True, env=environment()
    )
    writers = int(done.stdout)
    assert writers > 20
    created = [asyncio.run(inspect(LocalStore(tmp_path / str(count)))) for count in range(1, writers + 1)]
    assert created == sorted(created)
    assert set(created) == {False, True}


async def inspect(store: LocalStore) -> bool:
    """Check what a dead writer left; return whether its new object was there."""
    found = {key: await store.get(key, limit=200_000) for key in await keys_of(store)}
    assert found.pop("a/old") in (dying_writer.OLD, dying_writer.NEW)
    assert found in ({}, {"a/b/new": dying_writer.NEW})
    # Whoever comes next is not held up by what the dead one left.
    assert await store.put_if_absent("a/b/new", b"next") == (not found)
    await store.put("a/old", b"next")
    assert await store.get("a/old", limit=9) == b"next"
    assert await keys_of(store) == ["a/b/new", "a/old"]
    return bool(found)
