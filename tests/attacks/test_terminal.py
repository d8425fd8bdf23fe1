"""Names, labels and notes that would steer a terminal: no command lets one through, on stdout or stderr."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from deltastore.format.records import record_key
from deltastore.layout.live import LiveWeights
from deltastore.stores.local import LocalStore
from deltastore.writer.opening import open_writer
from deltastore.writer.whole import create_stream
from tests.cli.running import run_here
from tests.doubles.forging import forge
from tests.doubles.models import Tensors, bf16, cut_table

EVIL = "\x1b[2J\x1b]0;owned\x07\u202e\u2066../../etc/passwd\r\x9b31m"
"""Clears the screen, sets the title, turns the text around, climbs, goes back to the line's start, is red."""


async def _stream(folder: Path) -> str:
    model: Tensors = {
        "plain": bf16(np.arange(16)),
        f"layers.0.{EVIL}": bf16(np.arange(8)),
        f"layers.1.{EVIL}": bf16(np.arange(8)),
    }
    store = LocalStore(folder / "stream")
    await create_stream(store, LiveWeights(cut_table(model, 8), model), label=EVIL, metadata={"note": EVIL})
    writer = await open_writer(store, model, label=EVIL)
    for _ in range(2):
        for tensor in model.values():
            tensor.view(np.uint16)[:3] += 1
        await writer.publish(metadata={"note": EVIL, "step": 1})
    return store.url


COMMANDS = (
    ("log", "{url}"),
    ("show", "{url}", "0"),
    ("show", "{url}", "latest"),
    ("validate", "{url}"),
    ("validate", "{url}", "--deep"),
    ("stats", "{url}"),
    ("diff", "{url}", "0", "2"),
    ("why", "{url}", f"layers.0.{EVIL}[1]"),
    ("why", "{url}", "nothing[1]"),
    ("inspect", "{table}"),
    ("inspect", "{record}"),
    ("export", "{url}", "--out", "{out}"),
)


@pytest.mark.parametrize("as_json", [False, True])
async def test_nothing_from_the_store_steers_the_terminal(
    as_json: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = await _stream(tmp_path)
    root = tmp_path / "stream"
    places = {
        "url": url,
        "table": str(next((root / "tables").iterdir())),
        "record": str(root / record_key(2)),
        "out": str(tmp_path / "out"),
    }
    await _harmless(capsys, places, as_json)
    await forge(LocalStore(root), 4, digest="0" * 16)
    places["out"] = str(tmp_path / "again")
    await _harmless(capsys, places, as_json)


async def _harmless(capsys: pytest.CaptureFixture[str], places: dict[str, str], as_json: bool) -> None:
    for command in COMMANDS:
        given = [part.format(**places) if part.startswith("{") else part for part in command]
        ran = await asyncio.to_thread(run_here, capsys, *given, *(["--json"] if as_json else []))
        for line in (ran.out + ran.err).splitlines(keepends=True):
            text = line.removesuffix("\n")
            assert text.isprintable(), (command, text)
        assert ran.status != 2, (command, ran.err)
