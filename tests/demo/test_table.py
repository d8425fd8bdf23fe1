"""The verdict, and how it is shown."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from deltastore.demo.bound import ALLOWED_RATIO, FIXED_BYTES, Bound
from deltastore.demo.facts import Arrival, Facts, Losses, VersionFacts
from deltastore.demo.table import show


def version(number: int, nbytes: int, *, changed: int = 1000) -> VersionFacts:
    """A version whose bound is 1,000 bytes."""
    return VersionFacts(
        version=number,
        step=number,
        loss=2.5,
        nbytes=nbytes,
        bound=Bound(elements=100_000, changed=changed, position_bits=7000.0, step_bits=1000.0),
        publish_ms=12.3,
        arrivals=(Arrival(45.6, 1.25, 3000, [115, 101]), Arrival(78.9, 2.5, 3000, [115, 101])),
    )


def facts(*versions: VersionFacts, differences: tuple[str, ...] = (), url: str | None = None) -> Facts:
    return Facts(
        parameters=100_000,
        text_bytes=2**20,
        losses=Losses(5.5, 2.3, 2.2),
        anchor_bytes=200_000,
        versions=versions,
        readers={"engine-0": "checkpoint", "engine-1": "anchor"},
        differences=differences,
        url=url,
        seconds=33.4,
    )


def shown(run: Facts) -> str:
    page = io.StringIO()
    show(run, Console(file=page, width=80))
    return page.getvalue()


GOOD = facts(version(1, FIXED_BYTES + 1250), version(2, FIXED_BYTES + 1100))


def test_a_good_run_passes() -> None:
    assert GOOD.passed
    assert GOOD.worst_ratio == 1.25
    text = shown(GOOD)
    assert "PASS  readers are bit-identical to the trainer at all 3 versions" in text
    assert text.count("PASS") == 2
    assert "FAIL" not in text
    assert "engine-0 continues 'def __init__(self' with 'se'" in text


def test_a_row_holds_what_was_measured_and_fits_a_terminal() -> None:
    row = next(line for line in shown(GOOD).splitlines() if line.split()[:1] == ["1"])
    assert row.split() == ["1", "1.00%", "3,298", "3.30", "1,000", "1.250", "12", "46/79", "1.2/2.5"]
    assert max(map(len, shown(GOOD).splitlines())) <= 80


def test_one_byte_too_many_fails() -> None:
    run = facts(version(1, FIXED_BYTES + 1251))
    assert run.bit_identical
    assert not run.passed
    assert shown(run).count("FAIL") == 1


def test_a_version_outside_the_promise_is_not_judged() -> None:
    dense = version(1, FIXED_BYTES + 9000, changed=50_000)
    assert facts(dense, version(2, FIXED_BYTES + 1000)).worst_ratio == 1.0
    assert facts(dense, version(2, FIXED_BYTES + 1000)).passed


def test_a_run_in_which_nothing_was_judged_has_shown_nothing() -> None:
    run = facts(version(1, FIXED_BYTES, changed=50_000))
    assert run.worst_ratio is None
    assert not run.passed
    assert "no version has such a share" in shown(run)


@pytest.mark.parametrize("line", ["engine-1 differs at version 1", "engine-0 differs at the end: lm_head[0]"])
def test_a_difference_fails_and_is_named(line: str) -> None:
    run = replace(GOOD, differences=(line,))
    assert not run.passed
    assert "FAIL  readers are not bit-identical to the trainer:" in shown(run)
    assert line in shown(run)


def test_a_version_that_changed_nothing_is_shown() -> None:
    still = replace(version(1, 700), bound=Bound(100_000, 0, 0.0, 0.0))
    assert " 0.00%" in shown(facts(still))
    assert json.loads(json.dumps(facts(still).as_json()))["versions"][0]["ratio"] is None


def test_a_stream_that_stays_comes_with_commands() -> None:
    url = "file:///a" + "/long" * 20
    text = shown(replace(GOOD, url=url))
    for command in (f"log {url}", f"show {url} 2", f"validate {url}", f"export {url} --out ./exported"):
        assert f"  deltastore {command}\n" in text
    assert "deltastore" not in shown(GOOD)


def test_the_json_says_the_same() -> None:
    plain = json.loads(json.dumps(GOOD.as_json()))
    assert (plain["passed"], plain["bit_identical"], plain["worst_ratio"]) == (True, True, 1.25)
    assert plain["allowed_ratio"] == ALLOWED_RATIO
    assert plain["loss"] == {"untrained": 5.5, "warmed_up": 2.3, "final": 2.2}
    first = plain["versions"][0]
    assert (first["version"], first["changed"], first["elements"], first["bytes"]) == (1, 1000, 100_000, 3298)
    assert (first["bound_bytes"], first["ratio"], first["judged"]) == (1000.0, 1.25, True)
    assert first["readers"][1] == {"visible_ms": 78.9, "pause_ms": 2.5, "bytes": 3000, "tokens": [115, 101]}
