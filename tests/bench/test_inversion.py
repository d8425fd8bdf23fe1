"""The benchmark of publishing without a copy: what it measures with, and that every figure comes out."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from deltastore.bench.figure import Figure
from deltastore.bench.inversion import trainer as trainers
from deltastore.bench.inversion.measure import measure_inversion
from deltastore.bench.inversion.memory import measure_memory
from deltastore.bench.inversion.plan import InversionPlan
from deltastore.bench.inversion.rounds import KernelRound, Rounds
from deltastore.bench.inversion.trainer import WARM_UP, Trainer, decoder_shapes, torch_threads
from deltastore.errors import InputError, StoreError
from tests.cli.running import run_here

SMALL = 100_000
LR = 1e-4


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary folders are made, and are gone from in the end."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


class TestShapes:
    @pytest.mark.parametrize("parameters", [100_000, 1_000_000, 100_000_000, 1_000_000_000])
    def test_about_as_many_as_asked_for(self, parameters: int) -> None:
        sizes = {name: math.prod(shape) for name, shape in decoder_shapes(parameters).items()}
        assert 0.9 < sum(sizes.values()) / parameters < 1.1
        assert 0.1 < sizes["model.embed_tokens.weight"] / parameters < 0.14

    def test_a_billion_is_a_wide_model_of_several_layers(self) -> None:
        shapes = decoder_shapes(1_000_000_000)
        assert shapes["model.norm.weight"] == (2048,)
        assert shapes["model.layers.13.mlp.down_proj.weight"] == (2048, 6144)


class TestTrainer:
    def test_the_same_whenever_it_is_made(self) -> None:
        first, second = Trainer(SMALL, LR), Trainer(SMALL, LR)
        first.step("foreach")
        second.step("foreach")
        for name, weight in first.weights.items():
            assert torch.equal(weight, second.weights[name])

    def test_every_parameter_has_moments_and_moves(self) -> None:
        trainer = Trainer(SMALL, LR)
        before = {name: weight.detach().clone() for name, weight in trainer.weights.items()}
        for kind in ("fused", "foreach"):
            trainer.step(kind)
        for name, weight in trainer.weights.items():
            state = trainer.optimizer.state[weight]
            assert int(state["step"]) == WARM_UP + 2
            assert state["exp_avg"].shape == weight.shape
            assert not torch.equal(weight, before[name])

    def test_gradients_are_new_in_each_step_and_one_for_each_shape(self) -> None:
        trainer = Trainer(SMALL, LR)
        places = {weight.shape: weight.grad.data_ptr() for weight in trainer.weights.values()}
        assert {weight.grad.data_ptr() for weight in trainer.weights.values()} == set(places.values())
        before = {shape: weight.grad.clone() for shape, weight in _by_shape(trainer).items()}
        trainer.step()
        for shape, weight in _by_shape(trainer).items():
            assert not torch.equal(weight.grad, before[shape])

    def test_the_time_of_other_hooks_is_not_that_of_the_step(self, monkeypatch: pytest.MonkeyPatch) -> None:
        trainer = Trainer(SMALL, LR)
        clock = [0.0]
        monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

        def take(seconds: float) -> Any:
            def hook(*_: object) -> None:
                clock[0] += seconds

            return hook

        trainer.optimizer.register_step_pre_hook(take(100.0))
        trainer.optimizer.register_step_post_hook(take(10.0))
        step = trainer.step()
        assert (step.own, step.hooks) == (0.0, 110.0)

    def test_torch_gets_its_threads_back(self) -> None:
        before = torch.get_num_threads()
        with torch_threads(before + 1):
            assert torch.get_num_threads() == before + 1
        assert torch.get_num_threads() == before


def _by_shape(trainer: Trainer) -> dict[torch.Size, Any]:
    return {weight.shape: weight for weight in trainer.weights.values()}


class TestRounds:
    def test_a_round_is_found_again_until_it_is_committed(self) -> None:
        trainer = Trainer(SMALL, LR)
        rounds = Rounds(trainer, 1)
        trainer.step()
        assert rounds.find(1) == rounds.find(2) > 0
        rounds.commit()
        assert rounds.find(1) == 0
        rounds.close()
        assert len(trainer.optimizer._optimizer_step_pre_hooks) == 0

    def test_the_kernels_find_what_the_detector_finds(self) -> None:
        trainer = Trainer(SMALL, LR)
        rounds, kernels = Rounds(trainer, 1), KernelRound(trainer)
        trainer.step()
        found = rounds.find(1)
        for threads in (1, 2):
            seconds = kernels.run(threads)
            assert seconds.changed == found
            assert seconds.invert > 0 < seconds.encode
        kernels.close()


class TestFigures:
    def test_every_figure_comes_out(self, temporary: Path) -> None:
        found: dict[str, list[Figure]] = {}
        plan = InversionPlan(SMALL, LR, every=(1, 3), threads=2, repeats=1)
        before = torch.get_num_threads()
        for one in measure_inversion(plan):
            found.setdefault(one.name, []).append(one)
        assert torch.get_num_threads() == before
        check_times(found)
        check_memory(found)
        check_findings(found)
        assert list(temporary.iterdir()) == []

    def test_a_process_that_fails_says_why(self) -> None:
        with pytest.raises(StoreError, match=r"process of its own failed: .*names no store"):
            list(measure_memory("nowhere", InversionPlan(SMALL, LR)))

    def test_without_torch_it_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(trainers, "find_spec", lambda _: None)
        with pytest.raises(InputError, match=r"pip install 'deltastore\[torch\]'"):
            next(measure_inversion(InversionPlan(SMALL)))


def check_times(found: dict[str, list[Figure]]) -> None:
    (parameters,) = found["parameters"]
    assert 0.09 < parameters.value < 0.11
    for name in ("detection, every step", "publish, every step", "publish every 3 steps, a step"):
        assert [one.beside for one in found[name]] == ["the fused step", "the foreach step"]
        assert all(one.value > 0 for one in found[name])
    assert [one.target for one in found["publish, every step"]] == [1.5, 0.3]
    for count, target in (("1 thread", 0.35), ("2 threads", 0.6)):
        assert [one.target for one in found[f"invert+certify+encode, {count}"]] == [target]
        for name in ("invert+certify+encode", "invert+certify", "encode"):
            (one,) = found[f"{name}, {count}"]
            assert one.beside == "read ceiling"
            assert one.ratio is not None
            assert one.ratio > 0


def check_memory(found: dict[str, list[Figure]]) -> None:
    for often in ("every step", "every 3 steps"):
        (mine,) = found[f"memory, {often}"]
        assert mine.beside == "256 MB"
        assert mine.target == (1.0 if often == "every step" else None)
        assert f"memory with a copy, {often}" in found


def check_findings(found: dict[str, list[Figure]]) -> None:
    """Every change is found, and nothing is sent for nothing: the other process counted by comparing."""
    shares = []
    for often in ("every step", "every 3 steps"):
        (share,) = found[f"changed, {often}"]
        shares.append(share.value)
        assert [one.value for one in found[f"unexplained, {often}"]] == [0]
        assert [one.value for one in found[f"sent unchanged, {often}"]] == [0]
        (uncertain,) = found[f"uncertain, {often}"]
        assert 0 <= uncertain.value < 1000
        assert len(found[f"settled, {often}"]) == 1
    assert 0 < shares[0] < shares[1] < 100


class TestCommand:
    @pytest.fixture(autouse=True)
    def plans(self, monkeypatch: pytest.MonkeyPatch) -> list[InversionPlan]:
        """What would have been measured."""
        plans: list[InversionPlan] = []

        def measured(plan: InversionPlan) -> list[Figure]:
            plans.append(plan)
            return [Figure("publish", 2.0, "ms", 0.5, "the step", 1.0, at_most=True)]

        monkeypatch.setattr("deltastore.bench.inversion.measure.measure_inversion", measured)
        return plans

    def test_for_people(self, capsys: pytest.CaptureFixture[str], plans: list[InversionPlan]) -> None:
        done = run_here(capsys, "bench", "inversion", "--threads", "1")
        assert plans == [InversionPlan()]
        assert done.status == 0
        assert done.out.split() == ["publish", "2.00", "ms", "0.50", "of", "the", "step", "(<=", "1)"]

    def test_for_programs(self, capsys: pytest.CaptureFixture[str], plans: list[InversionPlan]) -> None:
        done = run_here(
            capsys,
            *("bench", "inversion", "--parameters", "2e9", "--lr", "1e-5", "--every", "4,1,4"),
            *("--threads", "2", "--repeats", "7", "--json"),
        )
        assert plans == [InversionPlan(2_000_000_000, 1e-5, (1, 4), 2, 7)]
        assert done.json == {
            **{"name": "publish", "value": 2.0, "unit": "ms", "ratio": 0.5, "beside": "the step"},
            **{"target": 1.0, "at_most": True, "reached": True},
        }

    @pytest.mark.parametrize("every", ["", "1,", "0", "1,x", "-1", "1001", "1.5"])
    def test_what_is_no_number_of_steps(self, capsys: pytest.CaptureFixture[str], every: str) -> None:
        run_here(capsys, "bench", "inversion", f"--every={every}").fails_with(2, "--every", "1,4,16")
