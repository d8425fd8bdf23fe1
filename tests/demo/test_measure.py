"""The comparison that the demo is there for: one wrong bit at one engine is found."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from deltastore.demo.bits import bf16_bits, fingerprint, write_bits
from deltastore.demo.measure import differences
from deltastore.demo.report import Report

WEIGHTS = {"a": torch.tensor([1.0, -0.0]), "b": torch.tensor([[2.0]])}
TRUTH = ["00", "11", fingerprint(bf16_bits(WEIGHTS))]


def engine(folder: Path, held: dict[str, torch.Tensor], *fingerprints: str) -> Any:
    """An engine that has reported ``fingerprints`` and ended with the weights ``held``."""
    reports = {
        version: Report(version, visible_at=0.0, pause_ms=0.0, nbytes=0, sha256=sha256, tokens=[])
        for version, sha256 in enumerate(fingerprints)
    }
    write_bits(bf16_bits(held), folder / "bits")
    return SimpleNamespace(name="engine-0", reports=reports, bits=folder / "bits")


def test_equal_bits_have_no_difference(tmp_path: Path) -> None:
    assert differences(engine(tmp_path, WEIGHTS, *TRUTH), TRUTH, WEIGHTS) == []


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_version_that_differed_is_named(tmp_path: Path, version: int) -> None:
    reported = [*TRUTH]
    reported[version] = "ff"
    expected = [f"engine-0 differs at version {version}"]
    assert differences(engine(tmp_path, WEIGHTS, *reported), TRUTH, WEIGHTS) == expected


def test_a_tensor_that_differs_at_the_end_is_named(tmp_path: Path) -> None:
    """Even by the sign of a zero alone, and even if the engine's own fingerprints are right."""
    held = {**WEIGHTS, "a": torch.tensor([1.0, 0.0])}
    expected = ["engine-0 differs at the end: a"]
    assert differences(engine(tmp_path, held, *TRUTH), TRUTH, WEIGHTS) == expected
