"""Forks trainers and lets each be killed at a later write: ``dying_publisher FOLDER SCENARIO WHEN``.

The n-th trainer works in the stream ``FOLDER/n`` and is killed, as by kill -9, right before (or after) its
n-th write to the store. It goes through ``create`` (a new stream), or through ``publish`` (a writer, a delta
of several packs, an anchor, another delta) on a copy of ``FOLDER/0``. The last one lives. Prints its number.

tensorstore does not survive a fork: it is imported by the children only, when they get that far.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from pathlib import Path

import numpy as np

from deltastore.stores.local import LocalStore
from deltastore.stream import AsyncStream
from deltastore.writer.opening import open_writer
from tests.doubles.models import Bits, Tensors, bits, change, tiny_model
from tests.doubles.stores import WRITES, Call, WatchedStore

VERSIONS = 4


def model_of(version: int) -> Tensors:
    """The trainer's model at each version: deterministic."""
    model = tiny_model(1)
    for step in range(version):
        change(model, np.random.default_rng(step), 25)
    return model


def history() -> dict[int, Bits]:
    """The bits of every version that a trainer goes through."""
    return {version: bits(model_of(version)) for version in range(VERSIONS)}


async def create(store: WatchedStore) -> None:
    """Make the stream."""
    await AsyncStream.create(store, model_of(0))


async def publish(store: WatchedStore) -> None:
    """Version 1 is a delta of several packs, version 2 an anchor, version 3 a delta again."""
    model = model_of(0)
    writer = await open_writer(store, model, pack_bytes=1)
    for version in range(1, VERSIONS):
        for name, tensor in model_of(version).items():
            model[name][...] = tensor
        await writer.publish(anchor=version == 2)


SCENARIOS = {"create": create, "publish": publish}


def dying_store(root: Path, number: int, when: str) -> WatchedStore:
    """A store over which this process is killed at its ``number``-th write."""
    left = number

    def strike(call: Call) -> None:
        nonlocal left
        left -= call.operation in WRITES
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    store = WatchedStore(LocalStore(root))
    setattr(store, when, strike)
    return store


def main(folder: str, scenario: str, when: str) -> None:
    """Fork trainers until one lives."""
    for number in range(1, 200):
        root = Path(folder, str(number))
        if scenario == "publish":
            shutil.copytree(Path(folder, "0"), root)
        child = os.fork()
        if child == 0:
            asyncio.run(SCENARIOS[scenario](dying_store(root, number, when)))
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == 0:
            sys.stdout.write(f"{number}\n")
            return
        if status != -signal.SIGKILL:
            raise SystemExit(f"trainer {number} ended with {status}")


if __name__ == "__main__":
    main(*sys.argv[1:])
