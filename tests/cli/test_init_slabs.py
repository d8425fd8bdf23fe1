"""``deltastore init``: the grid follows the configuration beside the weights, if it can."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import deltastore as library
from deltastore.format.records import AnchorRecord
from deltastore.format.table import TensorTable
from deltastore.layout.cutting import plain_table
from deltastore.layout.families import model_of
from deltastore.layout.slabs import slab_table
from deltastore.log import Log
from deltastore.replay import read_table
from deltastore.stores.local import LocalStore
from tests.cli.checkpoints import Tensor, Tensors, read_file, write_file
from tests.cli.conftest import Run
from tests.doubles.configs import decoder
from tests.doubles.models import bf16

DENSE = decoder("Qwen2ForCausalLM", 64, 2, 8, 2, 96, 200, tie_word_embeddings=True)
MIXTURE = decoder(
    "Qwen3MoeForCausalLM", 64, 2, 8, 8, 96, 256, head_dim=16, num_experts=8, moe_intermediate_size=32
)


def tensors_of(config: dict[str, Any]) -> Tensors:
    draw = np.random.default_rng(3)
    return {
        spec.name: Tensor("BF16", spec.shape, draw.bytes(spec.nbytes)) for spec in model_of(config).tensors()
    }


def checkpoint_of(folder: Path, config: dict[str, Any], *, more: Tensors | None = None) -> Path:
    folder.mkdir()
    write_file(folder / "model.safetensors", {**tensors_of(config), **(more or {})})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def table_in(stream: Path) -> TensorTable:
    async def read() -> TensorTable:
        async with LocalStore(stream) as store:
            return await read_table(store, (await Log(store).newest_manifest()).table)

    return asyncio.run(read())


def aligned(config: dict[str, Any], slabs: int, **options: Any) -> TensorTable:
    model = model_of(config)
    return slab_table(model, model.tensors(), slabs=slabs, **options)


@pytest.mark.parametrize(
    ("config", "options", "slabs", "moe"),
    [
        (DENSE, (), 8, None),
        (DENSE, ("--slabs", "2"), 2, None),
        (DENSE, ("--slabs", "0"), 0, None),
        (MIXTURE, (), 8, "ep"),
        (MIXTURE, ("--moe", "tp"), 8, "tp"),
        (MIXTURE, ("--slabs", "4", "--moe", "ep"), 4, "ep"),
        (MIXTURE, ("--slabs", "0"), 0, None),
    ],
)
def test_the_grid_that_is_asked_for(
    deltastore: Run,
    tmp_path: Path,
    config: dict[str, Any],
    options: tuple[str, ...],
    slabs: int,
    moe: str | None,
) -> None:
    checkpoint = checkpoint_of(tmp_path / "checkpoint", config)
    done = deltastore("init", tmp_path / "stream", "--from", checkpoint, *options, "--json")
    assert done.err == ""
    assert (done.json["slabs"], done.json["moe"]) == (slabs, moe)
    assert table_in(tmp_path / "stream") == aligned(config, slabs, moe=moe or "ep")


@pytest.mark.parametrize(
    ("config", "options", "words"),
    [
        (DENSE, (), "cut for up to 8 tensor-parallel readers"),
        (DENSE, ("--slabs", "1"), "cut for up to 1 tensor-parallel reader"),
        (MIXTURE, (), "cut for up to 8 tensor-parallel readers, each expert whole"),
        (MIXTURE, ("--moe", "tp"), "cut for up to 8 tensor-parallel readers, experts cut like the rest"),
    ],
)
def test_people_are_told_which_grid(
    deltastore: Run, tmp_path: Path, config: dict[str, Any], options: tuple[str, ...], words: str
) -> None:
    checkpoint = checkpoint_of(tmp_path / "checkpoint", config)
    done = deltastore("init", tmp_path / "stream", "--from", checkpoint, *options)
    assert done.out.splitlines()[1].strip() == words


@pytest.mark.parametrize(("config", "moe"), [(DENSE, "ep"), (MIXTURE, "ep"), (MIXTURE, "tp")])
def test_versions_come_back_to_the_bit_under_the_aligned_grid(
    deltastore: Run, tmp_path: Path, config: dict[str, Any], moe: str
) -> None:
    checkpoint, stream = checkpoint_of(tmp_path / "checkpoint", config), tmp_path / "stream"
    assert deltastore("init", stream, "--from", checkpoint, "--moe", moe).status == 0
    tensors = tensors_of(config)
    for number, (name, tensor) in enumerate(sorted(tensors.items())):
        bits = np.frombuffer(tensor.data, np.uint16).copy()
        bits[number :: 5 + number] ^= 3
        tensors[name] = Tensor(tensor.dtype, tensor.shape, bits.tobytes())
    second = write_file(tmp_path / "second.safetensors", tensors)
    assert deltastore("publish", stream, second).status == 0
    assert deltastore("validate", stream).status == 0
    for version, wanted in (("0", tensors_of(config)), ("1", tensors)):
        out = tmp_path / f"out-{version}"
        assert deltastore("export", stream, "--out", out, "--version", version).status == 0
        assert read_file(out / "model.safetensors") == wanted


class TestWhereTheGridCannotFollow:
    """The plain grid and a warning; an error where slabs were asked for."""

    def check(self, run: Run, checkpoint: Path, stream: Path, *words: str) -> None:
        done = run("init", stream, "--from", checkpoint, "--json")
        assert done.status == 0
        assert done.json["slabs"] == 0
        assert done.err.startswith("deltastore: warning: plain grid")
        assert done.err.count("\n") == 1
        for word in words:
            assert word in done.err
        assert table_in(stream).slabs == 0

    def test_an_unknown_architecture(self, deltastore: Run, tmp_path: Path) -> None:
        checkpoint = checkpoint_of(tmp_path / "checkpoint", DENSE)
        (checkpoint / "config.json").write_text(json.dumps({**DENSE, "architectures": ["Gemma9"]}))
        self.check(deltastore, checkpoint, tmp_path / "stream", "Gemma9", "Qwen3ForCausalLM")
        asked = deltastore("init", tmp_path / "other", "--from", checkpoint, "--slabs", "4")
        asked.fails_with(1, "Gemma9", "LlamaForCausalLM", "DeepseekV3ForCausalLM")
        assert not (tmp_path / "other").exists() or not any((tmp_path / "other").iterdir())
        assert deltastore("init", tmp_path / "plain", "--from", checkpoint, "--slabs", "0").err == ""

    def test_a_quantised_checkpoint(self, deltastore: Run, tmp_path: Path) -> None:
        checkpoint = checkpoint_of(tmp_path / "checkpoint", DENSE)
        quantised = {**DENSE, "quantization_config": {"quant_method": "fp8"}}
        (checkpoint / "config.json").write_text(json.dumps(quantised))
        self.check(deltastore, checkpoint, tmp_path / "stream", "quantised")

    def test_a_configuration_of_another_size(self, deltastore: Run, tmp_path: Path) -> None:
        checkpoint = checkpoint_of(tmp_path / "checkpoint", DENSE)
        (checkpoint / "config.json").write_text(json.dumps({**DENSE, "intermediate_size": 97}))
        self.check(
            deltastore, checkpoint, tmp_path / "stream", "mlp.gate_proj.weight", "[96, 64]", "[97, 64]"
        )
        asked = deltastore("init", tmp_path / "other", "--from", checkpoint, "--moe", "ep")
        asked.fails_with(1, "mlp.gate_proj.weight", "[96, 64]", "[97, 64]")

    def test_a_tensor_too_many(self, deltastore: Run, tmp_path: Path) -> None:
        more = {"model.extra": Tensor("BF16", (2,), bytes(4))}
        checkpoint = checkpoint_of(tmp_path / "checkpoint", DENSE, more=more)
        self.check(deltastore, checkpoint, tmp_path / "stream", "model.extra")

    def test_no_configuration_is_the_plain_grid_without_a_word(self, deltastore: Run, tmp_path: Path) -> None:
        file = write_file(tmp_path / "one.safetensors", tensors_of(DENSE))
        done = deltastore("init", tmp_path / "stream", "--from", file, "--json")
        assert (done.err, done.json["slabs"]) == ("", 0)
        asked = deltastore("init", tmp_path / "other", "--from", file, "--slabs", "8")
        asked.fails_with(1, "config.json", "plain grid")

    @pytest.mark.parametrize("options", [("--slabs", "-1"), ("--moe", "dp"), ("--slabs", "many")])
    def test_options_that_make_no_sense(
        self, deltastore: Run, tmp_path: Path, options: tuple[str, ...]
    ) -> None:
        checkpoint = checkpoint_of(tmp_path / "checkpoint", DENSE)
        deltastore("init", tmp_path / "stream", "--from", checkpoint, *options).fails_with(2, options[0])

    @pytest.mark.parametrize("options", [("--slabs", "4097"), ("--slabs", "0", "--moe", "ep")])
    def test_numbers_that_no_table_holds(
        self, deltastore: Run, tmp_path: Path, options: tuple[str, ...]
    ) -> None:
        checkpoint = checkpoint_of(tmp_path / "checkpoint", DENSE)
        deltastore("init", tmp_path / "stream", "--from", checkpoint, *options).fails_with(1, "slabs")


class TestLiveTensors:
    """The same for streams that are made of live tensors."""

    def live(self, config: dict[str, Any]) -> dict[str, Any]:
        return {
            name: bf16(np.frombuffer(tensor.data, np.uint16).reshape(tensor.shape))
            for name, tensor in tensors_of(config).items()
        }

    def test_with_a_configuration(self, tmp_path: Path) -> None:
        with library.create(
            tmp_path / "stream", self.live(MIXTURE), config=MIXTURE, slabs=4, moe="tp"
        ) as stream:
            assert isinstance(stream.newest(), AnchorRecord)
        assert table_in(tmp_path / "stream") == aligned(MIXTURE, 4, moe="tp")

    def test_eight_slabs_are_the_default(self, tmp_path: Path) -> None:
        with library.create(tmp_path / "stream", self.live(DENSE), config=DENSE):
            assert table_in(tmp_path / "stream") == aligned(DENSE, 8)

    def test_without_one(self, tmp_path: Path) -> None:
        with library.create(tmp_path / "stream", self.live(DENSE)):
            assert table_in(tmp_path / "stream") == plain_table(model_of(DENSE).tensors())

    @pytest.mark.parametrize(
        ("options", "code"),
        [
            ({"slabs": 8}, "bad_argument"),
            ({"moe": "ep"}, "bad_argument"),
            ({"config": {**DENSE, "architectures": ["Gemma9"]}}, "unknown_model"),
            ({"config": {**DENSE, "hidden_size": 65}}, "wrong_shape"),
            ({"config": DENSE, "moe": "dp"}, "bad_argument"),
        ],
    )
    def test_what_cannot_be(self, tmp_path: Path, options: dict[str, Any], code: str) -> None:
        with pytest.raises(library.InputError) as caught:
            library.create(tmp_path / "stream", self.live(DENSE), **options)
        assert caught.value.code == code
        assert not (tmp_path / "stream").exists() or not any((tmp_path / "stream").iterdir())
