"""``deltastore layout``: what it prints, and what it refuses."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from deltastore.cli.engines import EngineChoice
from deltastore.layout.engines.sglang import sglang
from deltastore.layout.engines.vllm import vllm
from deltastore.layout.layout_object import LayoutObject
from tests.cli.conftest import Run
from tests.doubles.configs import decoder

DENSE = decoder("Qwen3ForCausalLM", 64, 2, 8, 2, 128, 300, head_dim=16)
TIED = decoder("Qwen2ForCausalLM", 64, 2, 8, 2, 128, 320, tie_word_embeddings=True)
MIXTURE = decoder(
    "Qwen3MoeForCausalLM", 64, 2, 8, 2, 128, 320, head_dim=16, num_experts=8, moe_intermediate_size=32
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def written(folder: Path, config: dict[str, Any]) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


def test_the_options_are_those_of_the_layouts() -> None:
    drawn = {name for draw in (vllm, sglang) for name in inspect.signature(draw).parameters}
    assert drawn - {"config", "rank"} == set(inspect.signature(EngineChoice).parameters) - {"engine"}


def test_all_processes_in_brief(deltastore: Run, folder: Path) -> None:
    done = deltastore("layout", written(folder, DENSE), "--engine", "vllm", "--tp", "4", "--json").json
    layouts = [vllm(DENSE, tp=4, rank=rank) for rank in range(4)]
    assert [one["rank"] for one in done["ranks"]] == [0, 1, 2, 3]
    assert [one["pieces"] for one in done["ranks"]] == [len(layout.pieces) for layout in layouts]
    assert [one["parameters"] for one in done["ranks"]] == [len(layout.params) for layout in layouts]
    assert done["ranks"][0]["bytes"] == 2 * sum(param.elements for param in layouts[0].params)
    assert done["elements"] == sum(tensor.elements for tensor in layouts[0].tensors)


def test_all_processes_for_people(deltastore: Run, folder: Path) -> None:
    done = deltastore("layout", written(folder, DENSE), "--engine", "sglang", "--tp", "2", "--pp", "2")
    assert done.status == 0
    lines = done.out.splitlines()
    assert lines[0].split() == ["rank", "parameters", "pieces", "tensors", "memory", "of", "the", "model"]
    assert [line.split()[0] for line in lines[1:-1]] == ["0", "1", "2", "3"]


def test_every_piece_of_one_process(deltastore: Run, folder: Path) -> None:
    written(folder, DENSE)
    done = deltastore("layout", folder, "--engine", "vllm", "--tp", "4", "--rank", "3")
    assert done.status == 0
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0] == ["parameter", "shape", "type", "tensor", "at"]
    name = "model.layers.1.self_attn.qkv_proj.weight"
    assert [line[2:] for line in lines if line[0] == name] == [
        ["BF16", "model.layers.1.self_attn.q_proj.weight[96:128,", "0:64]", "[0:32,", "0:64]"],
        ["BF16", "model.layers.1.self_attn.k_proj.weight[16:32,", "0:64]", "[32:48,", "0:64]"],
        ["BF16", "model.layers.1.self_attn.v_proj.weight[16:32,", "0:64]", "[48:64,", "0:64]"],
    ]
    padding = next(line for line in lines if line[0] == "lm_head.weight" and "padding" in line)
    assert padding[-2:] == ["[60:80,", "0:64]"]


def test_a_tied_head_is_the_memory_of_the_embedding(deltastore: Run, folder: Path) -> None:
    done = deltastore("layout", written(folder, TIED), "--engine", "vllm", "--rank", "0")
    assert "lm_head.weight" in done.out
    assert "the memory of model.embed_tokens.weight" in done.out


def test_transposed_experts_say_so(deltastore: Run, folder: Path) -> None:
    options = ("--engine", "sglang", "--tp", "2", "--experts", "transposed", "--rank", "0")
    done = deltastore("layout", written(folder, MIXTURE), *options)
    line = next(line for line in done.out.splitlines() if "experts.3.down_proj" in line)
    assert line.split()[-1] == "transposed"


@pytest.mark.parametrize(
    ("options", "made"),
    [
        (("--engine", "vllm", "--tp", "2", "--rank", "1"), lambda: vllm(MIXTURE, tp=2, rank=1)),
        (
            ("--engine", "vllm", "--tp", "2", "--dp", "2", "--ep", "4", "--rank", "3"),
            lambda: vllm(MIXTURE, tp=2, dp=2, ep=4, rank=3),
        ),
        (
            ("--engine", "sglang", "--tp", "4", "--ep", "2", "--rank", "2", "--experts", "up_first"),
            lambda: sglang(MIXTURE, tp=4, ep=2, rank=2, experts="up_first"),
        ),
        (
            ("--engine", "sglang", "--pp", "2", "--rank", "1", "--router", "F32", "--norms", "F32"),
            lambda: sglang(MIXTURE, pp=2, rank=1, router="F32", norms="F32"),
        ),
        (
            ("--engine", "sglang", "--rank", "0", "--embedding", "F32"),
            lambda: sglang(MIXTURE, embedding="F32"),
        ),
    ],
)
def test_json_of_one_process_is_the_layout_object(
    deltastore: Run, folder: Path, options: tuple[str, ...], made: Any
) -> None:
    done = deltastore("layout", written(folder, MIXTURE), *options, "--json")
    assert done.out.encode() == LayoutObject.of(made()).to_bytes()
    assert LayoutObject.from_bytes(done.out.encode(), "it").layout().name == made().name


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        (("--engine", "vllm", "--tp", "3"), 1, ("qkv_proj.weight", "8 heads", "3")),
        (("--engine", "vllm", "--rank", "1"), 1, ("rank 1", "1 ranks")),
        (("--engine", "vllm", "--experts", "flashinfer_trtllm"), 1, ("flashinfer_trtllm", "kernel")),
        (("--engine", "vllm", "--experts", "newest"), 1, ("newest", "standard", "transposed", "up_first")),
        (("--engine", "trt"), 2, ("--engine", "vllm", "sglang")),
        (("--tp", "2"), 2, ("--engine",)),
        (("--engine", "vllm", "--tp", "0"), 2, ("--tp",)),
        (("--engine", "vllm", "--rank", "-1"), 2, ("--rank",)),
        (("--engine", "sglang", "--placement", "round_robin"), 2, ("--placement",)),
        (("--engine", "vllm", "--embedding", "F32"), 2, ("--embedding",)),
        (("--engine", "vllm", "--fused-shared"), 2, ("--fused-shared",)),
        (("--engine", "vllm", "--dp", "1000000000"), 2, ("1000000000", "--rank")),
    ],
)
def test_what_is_refused(
    deltastore: Run, folder: Path, options: tuple[str, ...], status: int, words: tuple[str, ...]
) -> None:
    deltastore("layout", written(folder, MIXTURE), *options).fails_with(status, *words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"architectures": ["GPT2LMHeadModel"], "hidden_size": 1}', ("num_hidden_layers",)),
        (json.dumps({**DENSE, "architectures": ["Gemma9"]}), ("Gemma9", "Qwen3ForCausalLM")),
        ("[1, 2", ("config.json",)),
        ("[" * 100_000, ("config.json",)),
        ("[]", ("not a JSON object",)),
    ],
)
def test_a_configuration_that_says_no_model(
    deltastore: Run, folder: Path, text: str, words: tuple[str, ...]
) -> None:
    (folder / "config.json").write_text(text)
    deltastore("layout", folder, "--engine", "vllm").fails_with(1, *words)


def test_a_configuration_that_is_not_there(deltastore: Run, folder: Path) -> None:
    deltastore("layout", folder / "none", "--engine", "vllm").fails_with(1, "none")
