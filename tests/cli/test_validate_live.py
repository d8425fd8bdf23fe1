"""``validate --live``: a dump that ``pull`` wrote, one wrong bit in it, and attestations."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import deltastore
from tests.cli.running import Ran, run_here
from tests.cli.test_plan_and_pull import CONFIG, Tensors, stream, versions

__all__ = ["stream", "versions"]

Run = Callable[..., Ran]
VLLM = ["--engine", "vllm", "--tp", "4", "--rank", "3"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return functools.partial(run_here, capsys)


@pytest.fixture
def pulled(run: Run, stream: str, tmp_path: Path) -> Path:
    """The parameters of rank 3 of 4 at version 1, and their layout."""
    assert run("pull", stream, *VLLM, "--out", str(tmp_path / "pulled")).status == 0
    return tmp_path / "pulled"


def test_what_pull_wrote_is_the_version(run: Run, stream: str, pulled: Path) -> None:
    for options in (
        [],
        VLLM,
        ["--layout", f"{pulled}/layout.json"],
        ["--version", "1"],
        ["--version", "latest"],
    ):
        ran = run("validate", stream, "--live", str(pulled), *options)
        assert (ran.status, ran.out[:18]) == (0, "live = version 1 ("), ran.err
        assert "bit by bit" in ran.out
    ran = run("validate", stream, "--live", str(pulled), "--version", "0")
    assert ran.status == 12
    assert ran.out.startswith("live is not version 0 (")


def test_one_wrong_bit(run: Run, stream: str, pulled: Path) -> None:
    name = "model.layers.1.mlp.experts.routed_experts.w2_weight"
    file = pulled / "parameters.safetensors"
    params = dict(load_file(file))
    params[name] = params[name].copy()
    params[name].view(np.uint16)[3, 2, 1] ^= 0x8000
    save_file(params, file)
    ran = run("validate", stream, "--live", str(pulled), "--json")
    facts = json.loads(ran.out)
    assert ran.status == 12
    assert (facts["ok"], facts["error"]["code"], facts["compared"]) == (False, "bad_digest", "bits")
    (problem,) = facts["problems"]
    assert (problem["check"], problem["parameter"], problem["elements"]) == ("DS092", name, 1)
    assert 0 < facts["covered"] < facts["total"]
    assert int(problem["live"], 16) ^ int(problem["stored"], 16) == 0x8000
    ran = run("validate", stream, "--live", str(pulled))
    assert f"1 element of {problem['tensor']} in parameter {name}" in ran.out


def test_attestations_of_a_reader(run: Run, stream: str, versions: list[Tensors], tmp_path: Path) -> None:
    tensors = {name: bits.view(np.float16).copy() for name, bits in versions[0].items()}
    with deltastore.open(stream) as opened:
        reader = opened.reader(tensors)
        reader.sync()
        reader.attest(tmp_path / "all" / "rank0.json")
        ran = run("validate", stream, "--live", str(tmp_path / "all"))
        assert (ran.status, ran.out[:18]) == (0, "live = version 1 ("), ran.err
        assert "digests" in ran.out
        assert ", all of the model)\n  rank0.json: version 1, 20" in ran.out
        assert run("validate", stream, "--live", str(tmp_path / "all"), "--nonce", "0" * 32).status == 1
        tensors["lm_head.weight"][5, 5] += 1
        reader.attest(tmp_path / "all" / "rank0.json")
    ran = run("validate", stream, "--live", str(tmp_path / "all" / "rank0.json"), "--json")
    facts = json.loads(ran.out)
    assert (ran.status, facts["compared"], facts["differing_chunks"]) == (12, "digests", 1)
    assert facts["problems"][0]["tensor"] == "lm_head.weight"
    assert run("validate", stream, "--live", str(tmp_path / "all"), *VLLM).status == 2


def test_what_cannot_be_compared(run: Run, stream: str, pulled: Path, tmp_path: Path) -> None:
    def status(*options: str) -> int:
        return run("validate", stream, *options).status

    live = ["--live", str(pulled)]
    assert status(*live, "--version", "7") == 10
    assert status(*live, "--engine", "vllm", "--tp", "2") == 1
    for wrong in (["--deep"], ["--level", "content"], ["--checks"], ["--resume", f"{tmp_path}/notes"]):
        assert status(*live, *wrong) == 2
    others = (["--layout", "x"], ["--rank", "1"], ["--config", "x"], ["--nonce", "0"])
    for alone in (["--tp", "2"], *others, VLLM):
        assert status(*alone) == 2
    assert status(*live, "--layout", f"{pulled}/layout.json", *VLLM) == 2
    assert status("--live", f"{tmp_path}/absent") == 1
    (tmp_path / "a.json").write_text("{}")
    assert status("--live", f"{tmp_path}/a.json") == 12
    params: dict[str, Any] = dict(load_file(pulled / "parameters.safetensors"))
    params.pop(sorted(params)[0])
    save_file(params, pulled / "parameters.safetensors")
    assert status(*live) == 1
    assert CONFIG["num_experts"] == 8
