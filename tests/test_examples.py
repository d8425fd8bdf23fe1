"""The examples, as a reader would start them: one process trains, another follows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import deltastore
from deltastore.cli import main
from deltastore.layout.families import model_of
from tests.doubles.configs import decoder

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
STEPS = 12
UNBUFFERED = {**os.environ, "PYTHONUNBUFFERED": "1"}


def command(script: str, *arguments: str) -> list[str]:
    return [sys.executable, str(EXAMPLES / script), *arguments]


def versions_in(text: str) -> list[int]:
    return [int(found) for found in re.findall(r"\bversion (\d+)", text)]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return (tmp_path_factory.mktemp("examples") / "policy").as_uri()


def test_an_engine_follows_a_trainer_to_the_last_version(url: str) -> None:
    arguments = command("trainer.py", url, str(STEPS))
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=UNBUFFERED) as trainer:
        try:
            assert trainer.stdout is not None
            first = trainer.stdout.readline()
            engine = subprocess.run(
                command("engine.py", url, str(STEPS)), capture_output=True, text=True, timeout=120
            )
            rest = trainer.stdout.read()
        finally:
            trainer.kill()
    assert engine.returncode == 0, engine.stderr
    assert versions_in(first + rest) == list(range(1, STEPS + 1))
    followed = versions_in(engine.stdout)
    assert followed == sorted(set(followed))
    assert followed[-1] == STEPS


def test_a_second_trainer_goes_on_in_the_same_stream(url: str) -> None:
    result = subprocess.run(command("trainer.py", url, "1"), capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    with deltastore.open(url) as stream:
        assert versions_in(result.stdout) == [stream.newest().version]


def test_an_engine_follows_trainers_that_hold_a_shard_each(tmp_path: Path) -> None:
    url = (tmp_path / "policy").as_uri()
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
    arguments = [*torchrun, str(EXAMPLES / "sharded_trainer.py"), url, "3"]
    result = subprocess.run(arguments, capture_output=True, text=True, timeout=300, env=UNBUFFERED)
    assert result.returncode == 0, result.stderr
    assert versions_in(result.stdout) == [1, 2, 3]
    with deltastore.open(url) as stream:
        assert stream.newest().kind == "delta"
    engine = subprocess.run(command("engine.py", url, "3"), capture_output=True, text=True, timeout=120)
    assert engine.returncode == 0, engine.stderr
    assert versions_in(engine.stdout) == [3]


def test_a_rank_of_a_sharded_engine_follows(tmp_path: Path) -> None:
    config = decoder("Qwen3ForCausalLM", 64, 2, 8, 4, 96, 300, head_dim=16)
    tensors = {spec.name: torch.randn(spec.shape).to(torch.bfloat16) for spec in model_of(config).tensors()}
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(tensors, tmp_path / "model.safetensors")
    url = (tmp_path / "policy").as_uri()
    assert main(["init", url, "--from", str(tmp_path)]) == 0
    with deltastore.open(url) as stream:
        writer = stream.writer(tensors)
        tensors["model.norm.weight"][3] += 1
        writer.publish()
    engine = subprocess.run(
        command("engine_shard.py", url, "4", "2", "1"), capture_output=True, text=True, timeout=120
    )
    assert engine.returncode == 0, engine.stderr
    assert versions_in(engine.stdout) == [1]


@pytest.mark.parametrize("script", ["trainer.py", "engine.py", "engine_shard.py", "sharded_trainer.py"])
def test_an_example_shows_how_to_start_it_and_is_short(script: str) -> None:
    text = (EXAMPLES / script).read_text(encoding="utf-8")
    assert f" examples/{script} file:///" in text
    assert len(text.splitlines()) <= 48
