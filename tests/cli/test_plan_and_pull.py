"""``plan`` and ``pull``: what one process of an engine would fetch, and what it would hold."""

from __future__ import annotations

import itertools
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import deltastore
from deltastore.errors import NotFoundError
from deltastore.layout.engines.sglang import sglang
from deltastore.layout.engines.vllm import vllm
from deltastore.layout.families import model_of
from deltastore.layout.layout_object import LayoutObject
from deltastore.layout.pieces import Layout
from deltastore.stores.open import open_store
from tests.cli.running import Ran, run_here
from tests.doubles.configs import decoder
from tests.doubles.stores import Call, WatchedStore
from tests.layout.reassembling import held
from tests.reader.shards import fetch_by_ranges

CONFIG = {
    **decoder("Qwen3MoeForCausalLM", 64, 2, 8, 4, 96, 500),
    "head_dim": 16,
    "num_experts": 8,
    "moe_intermediate_size": 32,
    "dtype": "float16",  # which NumPy can save
}
Tensors = dict[str, np.ndarray[Any, Any]]


@pytest.fixture(scope="module")
def versions() -> list[Tensors]:
    """Two versions; in the second one, some elements are the next value."""
    draw = np.random.default_rng(5)
    first = {
        tensor.name: draw.integers(0, 1 << 16, tensor.shape, np.uint16)
        for tensor in model_of(CONFIG).tensors()
    }
    second = {name: bits + (draw.random(bits.shape) < 0.02).astype(np.uint16) for name, bits in first.items()}
    return [first, second]


@pytest.fixture(scope="module")
def stream(versions: list[Tensors], tmp_path_factory: pytest.TempPathFactory) -> str:
    """A stream of both versions, which carries the configuration."""
    from deltastore.cli import main

    folder = tmp_path_factory.mktemp("stream")
    for number, tensors in enumerate(versions):
        checkpoint = folder / f"checkpoint-{number}"
        checkpoint.mkdir()
        (checkpoint / "config.json").write_text(json.dumps(CONFIG))
        save_file(
            {name: bits.view(np.float16) for name, bits in tensors.items()}, checkpoint / "model.safetensors"
        )
    url = f"{folder}/stream"
    assert main(["init", url, "--from", f"{folder}/checkpoint-0"]) == 0
    assert main(["publish", url, f"{folder}/checkpoint-1"]) == 0
    return url


def one(ran: Ran) -> dict[str, Any]:
    assert ran.status == 0, ran.err
    facts = json.loads(ran.out)
    assert isinstance(facts, dict)
    return facts


@pytest.mark.parametrize(
    ("engine", "degrees", "rank"),
    [
        ("vllm", {"tp": 1}, 0),
        ("vllm", {"tp": 4}, 3),
        ("vllm", {"tp": 8, "ep": 8}, 5),
        ("sglang", {"tp": 4, "ep": 2, "pp": 2}, 6),
    ],
)
@pytest.mark.parametrize("version", [0, 1])
def test_pull_writes_what_the_process_holds(
    stream: str,
    versions: list[Tensors],
    engine: str,
    degrees: dict[str, int],
    rank: int,
    version: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    options = [text for name, value in degrees.items() for text in (f"--{name}", str(value))]
    where = ["--engine", engine, "--rank", str(rank), "--version", str(version), *options]
    facts = one(run_here(capsys, "pull", stream, *where, "--out", out, "--json"))
    tp, pp, ep = (degrees.get(name, 1) for name in ("tp", "pp", "ep"))
    draw: Callable[..., Layout] = vllm if engine == "vllm" else sglang
    layout = draw(CONFIG, tp=tp, pp=pp, ep=ep, rank=rank)
    expected = held(layout, {name: bits.astype(np.int64) for name, bits in versions[version].items()})
    found = {name: bits.view(np.uint16) for name, bits in load_file(out / "parameters.safetensors").items()}
    assert sorted(found) == sorted(expected)
    for name, bits in expected.items():
        assert (found[name] == bits).all(), name
    assert (facts["version"], facts["parameters"]) == (version, len(expected))
    assert facts["bytes"] == sum(bits.nbytes for bits in found.values())
    written = LayoutObject.from_bytes((out / "layout.json").read_bytes(), "layout.json")
    assert written == LayoutObject.of(layout)
    assert sorted(path.name for path in out.iterdir()) == ["layout.json", "parameters.safetensors"]


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("ranges", [False, True])
def test_plan_says_what_is_fetched(
    stream: str,
    version: int,
    ranges: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Version 0 is stored whole, version 1 a delta to it, which a new process begins with."""
    if ranges:
        fetch_by_ranges(monkeypatch)
    where = [stream, "--engine", "vllm", "--tp", "2", "--rank", "1"]
    plans = [
        one(run_here(capsys, "plan", *where, "--version", str(number), "--json"))
        for number in range(version + 1)
    ]
    pulled = one(
        run_here(capsys, "pull", *where, "--version", str(version), "--out", tmp_path / "out", "--json")
    )
    assert sum(plan["requests"] for plan in plans) == pulled["requests"]
    assert sum(plan["bytes"] for plan in plans) == pulled["fetched_bytes"]
    kind, whole, parts = [("anchor", "anchor_bytes", "objects"), ("delta", "delta_bytes", "packs")][version]
    facts = plans[version]
    assert (facts["version"], facts["kind"], facts.get("base")) == (version, kind, [None, 0][version])
    assert 0 < facts["needed_bytes"] < facts["bytes"] <= facts[whole]
    assert 0 < facts["chunks_in_part"] < facts["chunks"]
    assert {part["whole"] for part in facts[parts]} >= {not ranges}
    opening = facts["requests"] - sum(part["requests"] for part in facts[parts])
    assert (opening > 0) == (kind == "anchor")
    for part in facts[parts]:
        fetched = part["index_bytes"] * (not part["whole"])
        assert part["fetched_bytes"] == fetched + sum(end - start for start, end in part["ranges"])


def test_plan_for_people(stream: str, capsys: pytest.CaptureFixture[str]) -> None:
    for version, last in (
        (0, r"  objects \d+, of which \d+ are fetched whole"),
        (1, r"  pack [0-9a-f]{12}  .*"),
    ):
        where = [stream, "--engine", "sglang", "--tp", "8", "--ep", "8", "--version", str(version)]
        lines = run_here(capsys, "plan", *where).out.splitlines()
        name = "sglang tp=8 pp=1 dp=1 ep=8 rank=0"
        assert re.fullmatch(
            rf"version {version} for {name}: \d+ requests?, [\d.]+ KiB of .*iB \([\d.]+ %\)", lines[0]
        )
        beside = "indexes" if version else "metadata, indexes and sums"
        assert re.fullmatch(rf"  needed  .*B of (chunks|patches), .*B of {beside}", lines[1])
        assert re.fullmatch(r"  chunks  \d+, of which \d+ are held in part", lines[2])
        assert re.fullmatch(last, lines[-1])


@pytest.mark.parametrize(
    ("options", "status", "says"),
    [
        (["--tp", "3"], 1, ["qkv_proj.weight", "8 heads", "3"]),
        (["--tp", "2", "--rank", "2"], 1, ["rank 2", "2 ranks"]),
        (["--experts", "flashinfer_trtllm"], 1, ["flashinfer_trtllm"]),
        (["--version", "7"], 10, ["no version 7", "its last one is 1"]),
        (["--config", "/nowhere"], 1, ["/nowhere"]),
        (["--placement", "sideways"], 2, ["--placement", "round_robin"]),
        (["--embedding", "F32"], 2, ["--embedding", "vllm"]),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_fetched(
    stream: str,
    options: list[str],
    status: int,
    says: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stores: list[WatchedStore] = []

    def watched(url: str) -> WatchedStore:
        stores.append(WatchedStore(open_store(url)))
        return stores[-1]

    monkeypatch.setattr("deltastore.stores.open.open_store", watched)
    for command, more in (("plan", []), ("pull", ["--out", str(tmp_path / "out")])):
        ran = run_here(capsys, command, stream, "--engine", "vllm", *options, *more)
        ran.fails_with(status, *says)
    asked = {key.split("/")[0] for store in stores for key in store.keys("get", "get_range")}
    assert asked == (set() if status == 2 else {"log", "files"} & asked)
    assert len(stores) == (0 if status == 2 else 2)
    assert not (tmp_path / "out").exists()


def test_another_models_configuration(
    stream: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "config.json"
    other.write_text(json.dumps({**CONFIG, "num_hidden_layers": 3}))
    ran = run_here(capsys, "plan", stream, "--engine", "vllm", "--config", other)
    assert ran.status == 1
    assert "model.layers.2." in ran.err


def test_pull_into_a_directory_with_files(
    stream: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").write_text("mine")
    pull: list[str | Path] = ["pull", stream, "--engine", "vllm", "--tp", "2", "--out", tmp_path]
    run_here(capsys, *pull).fails_with(1, "is not empty", "parameters with force (--force)")
    assert run_here(capsys, *pull, "--force").status == 0
    assert (tmp_path / "mine").read_text() == "mine"
    assert run_here(capsys, *pull, "--force").status == 0


@pytest.mark.parametrize("stops", range(3))
def test_a_crash_while_files_are_replaced(
    stream: str,
    stops: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Wherever it comes: a layout in the directory is that of its parameters."""
    where: list[str | Path] = ["pull", stream, "--engine", "vllm", "--out", tmp_path, "--force"]
    assert run_here(capsys, *where, "--tp", "2").status == 0
    moves = itertools.count()
    replace = os.replace

    def stopped(source: Path, target: Path) -> None:
        if next(moves) == stops:
            raise OSError(28, "no space")
        replace(source, target)

    monkeypatch.setattr("deltastore.pull.os.replace", stopped)
    assert run_here(capsys, *where, "--tp", "4").status == (0 if stops == 2 else 1)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["layout.json", "parameters.safetensors"][stops < 2 :]
    if "layout.json" in names:
        layout = LayoutObject.from_bytes((tmp_path / "layout.json").read_bytes(), "it").layout()
        held = load_file(tmp_path / "parameters.safetensors")
        assert {name: bits.shape for name, bits in held.items()} == {
            param.name: param.shape for param in layout.params
        }


def test_a_carried_configuration_that_is_too_large_is_not_fetched(
    stream: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(call: Call) -> None:
        assert not call.key.startswith("files/")

    monkeypatch.setattr("deltastore.carried_config.CONFIG_BYTES", 100)
    monkeypatch.setattr(
        "deltastore.stores.open.open_store", lambda url: WatchedStore(open_store(url), before=refuse)
    )
    ran = run_here(capsys, "plan", stream, "--engine", "vllm")
    ran.fails_with(1, "files/", "config.json", "above 100", "give the model's configuration")


def test_a_stream_that_carries_no_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_file({"w": np.zeros((2, 2), np.float16)}, tmp_path / "w.safetensors")
    url = tmp_path / "stream"
    assert run_here(capsys, "init", url, "--from", tmp_path / "w.safetensors").status == 0
    ran = run_here(capsys, "plan", url, "--engine", "vllm")
    ran.fails_with(10, "carries no config.json: give the model's configuration with --config")
    with deltastore.open(url) as opened, pytest.raises(NotFoundError, match=r"the model's configuration$"):
        opened.config()
