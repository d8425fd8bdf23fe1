"""The benchmark of the kernels: what it measures with, and that every figure comes out."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import zstandard

from deltastore.bench.kernels import DENSITIES, Measured, measure_kernels
from deltastore.bench.model import SHAPES, make_model
from deltastore.bench.rival import xor_zstd_bytes
from deltastore.errors import InputError
from deltastore.kernels.reference.ordered import ordered, signed_step
from tests.cli.running import Ran, run_here

COMMAND = ("bench", "kernels", "--shapes", "small", "--repeats", "1")
SMALL = {"up_proj": (300, 512), "down_proj": (128, 700), "norm": (64,)}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, "small", SMALL)
    monkeypatch.setattr("deltastore.bench.kernels._SMALL_CHUNKS", 500)


class TestModel:
    def test_it_is_the_same_whenever_it_is_made(self) -> None:
        (first, step), (second, again) = make_model("small", 2), make_model("small", 2)
        for name, bits in first.tensors.items():
            assert (bits == second.tensors[name]).all()
            assert (step(0.02).model.tensors[name] == again(0.02).model.tensors[name]).all()

    @pytest.mark.parametrize("density", DENSITIES)
    def test_about_as_many_elements_change_as_asked_for(self, density: float) -> None:
        model, step_of = make_model("small", 1)
        step = step_of(density)
        changed = sum(int((step.model.tensors[name] != old).sum()) for name, old in model.tensors.items())
        assert changed == step.changed
        assert step.density == changed / model.table.elements
        assert density / 2 < step.density < density * 2

    def test_changes_stand_in_clusters_and_most_are_of_one_step(self) -> None:
        model, step_of = make_model("small", 1)
        step = step_of(0.05)
        name = "model.layers.0.up_proj.weight"
        old, new = model.tensors[name], step.model.tensors[name]
        by_row = (old != new).sum(axis=1)
        assert by_row.var() > 3 * by_row.mean()  # spread evenly, they would be about equal
        moved = old != new
        steps = signed_step(ordered(old[moved], floating=True), ordered(new[moved], floating=True))
        assert 0.7 < (np.abs(steps.astype(int)) == 1).mean() < 0.99
        assert np.abs(steps.astype(int)).max() > 7


def test_the_rival_is_xor_and_zstd() -> None:
    old = {"w": np.arange(5000, dtype=np.uint16), "v": np.zeros(10, np.uint16)}
    new = {"w": old["w"] ^ np.uint16(1), "v": old["v"]}
    parts = [(old[name] ^ new[name]).tobytes() for name in old]
    assert xor_zstd_bytes(old, new) == sum(len(zstandard.compress(part, 1)) for part in parts)


def test_without_zstandard_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(InputError, match=r"pip install 'deltastore\[bench\]'"):
        xor_zstd_bytes({}, {})


def test_every_figure_comes_out() -> None:
    found = list(measure_kernels("small", 1, threads=2, repeats=1))
    names = {one.name for one in found}
    assert names >= {"read ceiling", "diff+encode", "digest", "decode+apply", "resolve", "check", "size"}
    for one in found:
        assert one.value > 0
        assert one.ratio is None or one.ratio > 0
        assert one.threads in (1, 2)
    sizes = [one for one in found if one.name == "size" and one.density and 0.004 < one.density < 0.06]
    assert {one.beside for one in sizes} == {"entropy bound", "XOR + zstd-1"}
    assert all(one.target is not None and one.at_most for one in sizes)


@pytest.mark.parametrize(
    ("ratio", "target", "at_most", "reached"),
    [(0.6, 0.55, False, True), (0.5, 0.55, False, False), (1.2, 1.25, True, True), (1.3, 1.25, True, False)],
)
def test_a_target_is_of_the_ratio(ratio: float, target: float, at_most: bool, reached: bool) -> None:
    one = Measured("x", None, 1, 99.0, "GB/s", ratio, "y", target, at_most)
    assert one.reached is reached


def test_a_target_without_a_ratio_is_of_the_value() -> None:
    assert Measured("x", None, 1, 0.9, "us", target=1.0, at_most=True).reached is True
    assert Measured("x", None, 1, 1.1, "us", target=1.0, at_most=True).reached is False
    assert Measured("x", None, 1, 1.1, "us").reached is None


class TestCommand:
    def test_for_people(self, capsys: pytest.CaptureFixture[str]) -> None:
        done = run_here(capsys, *COMMAND, "--threads", "2")
        assert done.status == 0
        assert "diff+encode" in done.out
        assert "of read ceiling" in done.out

    def test_for_programs(self, capsys: pytest.CaptureFixture[str]) -> None:
        done: Ran = run_here(capsys, *COMMAND, "--threads", "1", "--json")
        facts: list[dict[str, Any]] = done.lines
        assert len(facts) > 30
        assert {"name", "density", "threads", "value", "unit", "ratio", "beside", "target"} <= set(facts[0])
        assert all("reached" in fact for fact in facts)

    def test_an_unknown_model(self, capsys: pytest.CaptureFixture[str]) -> None:
        run_here(capsys, "bench", "kernels", "--shapes", "gpt-2").fails_with(2, "gpt-2", "qwen3-8b")
