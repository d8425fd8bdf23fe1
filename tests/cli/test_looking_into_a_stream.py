"""``inspect``, ``stats``, ``diff`` and ``why``: what they print, and how they end."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.checkpoints import Tensor, first_tensors, second_tensors, third_tensors, write_file
from tests.cli.conftest import Run
from tests.cli.tampering import flip, only, record_path, rewrite

EMBEDDING = "model.embed_tokens.weight"
HOSTILE = "\x1b[2J[red]\n"


def bits_of(tensor: Tensor) -> np.ndarray[Any, Any]:
    width = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "I64": 8}[tensor.dtype]
    return np.frombuffer(tensor.data, f"<u{width}")


@pytest.fixture
def three(deltastore: Run, stream: Path, third: Path) -> Path:
    """Versions 0, 1 and 2."""
    assert deltastore("publish", stream, third, "--step", "200").status == 0
    return stream


def test_inspect_shows_every_kind(deltastore: Run, stream: Path) -> None:
    one_of_each = (
        "log/*4.json",
        "tables/*",
        "packs/*/*",
        "anchors/*/*/inventory.json",
        "anchors/*/*/zarr.json",
    )
    for path in [
        next(stream.glob(pattern)) for pattern in (*one_of_each, "anchors/*/*/*0/c/*/*/*", "files/*")
    ]:
        ran = deltastore("inspect", path)
        assert (ran.status, ran.err) == (0, "")
        facts = deltastore("inspect", path, "--json").json
        assert ran.out.startswith(f"{path}: {facts['kind']}, ")
        assert facts["problems"] == []
    pack = only(stream, "packs/*/*")
    ran = deltastore("inspect", pack, "--row", "0", "--hex", "--entropy", "--check")
    assert f"named by  version 1, {record_path(stream, 4).relative_to(stream)}" in ran.out
    for words in ("run count: 4 bytes at", "residues: ", "all ", EMBEDDING, "without a fault"):
        assert words in ran.out


def test_inspect_names_what_is_wrong_and_shows_the_rest(deltastore: Run, stream: Path) -> None:
    pack = only(stream, "packs/*/*")
    size = pack.stat().st_size
    flip(pack, size - 1)
    assert deltastore("inspect", pack).status == 0  # patches are not read unless they are asked for
    ran = deltastore("inspect", pack, "--check")
    ran.fails_with(12, str(pack.name))
    assert "bad_hash DS044 at byte" in ran.out
    facts = deltastore("inspect", pack, "--check", "--json").json
    assert facts["error"]["code"] == "bad_hash"
    assert {problem["check"] for problem in facts["problems"]} == {"DS044", "DS061"}
    assert facts["header"]["version"] == 1
    flip(pack, 0)
    assert "bad_index DS040 at byte 0" in deltastore("inspect", pack).out
    rewrite(record_path(stream, 0), format=2)
    deltastore("inspect", record_path(stream, 0)).fails_with(13, "upgrade deltastore")


def test_inspect_of_what_is_not_there_or_no_object(deltastore: Run, stream: Path, tmp_path: Path) -> None:
    deltastore("inspect", tmp_path / "absent").fails_with(10, "no file")
    deltastore("inspect", stream).fails_with(1, "folder")
    (tmp_path / "note").write_text("hello")
    ran = deltastore("inspect", tmp_path / "note")
    ran.fails_with(1, "no object of a stream")
    assert "content   text" in ran.out
    deltastore("inspect", only(stream, "packs/*/*"), "--hex").fails_with(2, "--row")
    deltastore("inspect", record_path(stream, 4), "--row", "0").fails_with(2, "of kind record", "--row")
    deltastore("inspect", only(stream, "packs/*/*"), "--row", "77").fails_with(1, "no row 77")


def test_what_objects_say_cannot_steer_the_terminal(deltastore: Run, three: Path) -> None:
    rewrite(record_path(three, 6), metadata={"step": HOSTILE, "note": HOSTILE})
    table = only(three, "tables/*")
    commands = [
        ("inspect", record_path(three, 6)),
        ("stats", three),
        ("diff", three, "1", "2"),
        ("why", three, f"{EMBEDDING}[0]"),
    ]
    for command in commands:
        ran = deltastore(*command)
        assert ran.status == 0, ran.err
        assert "\x1b" not in ran.out
        assert any(f"{escape}[2J[red]" in ran.out for escape in (r"\x1b", r"\u001b")) or command[0] == "why"
    fields = json.loads(table.read_bytes())
    fields["arrays"][0]["pattern"] = HOSTILE
    rewrite(table, arrays=fields["arrays"])
    for command in [("inspect", table), ("inspect", only(three, f"packs/{1:020d}/*")), *commands[1:]]:
        ran = deltastore(*command)
        assert "\x1b" not in ran.out + ran.err
    deltastore("why", three, f"{HOSTILE}[0]").fails_with(12)
    deltastore("inspect", HOSTILE).fails_with(10, r"\x1b[2J[red]")


def test_stats_in_words_and_facts(deltastore: Run, three: Path, stream: Path) -> None:
    ran, facts = deltastore("stats", three, "--layers"), deltastore("stats", three, "--json").json
    assert (ran.status, ran.err) == (0, "")
    assert [one["version"] for one in facts["versions"]] == [0, 1, 2]
    tensors = [first_tensors(), second_tensors(), third_tensors()]
    for one in facts["versions"][1:]:
        old, new = tensors[one["version"] - 1], tensors[one["version"]]
        changed = sum(int(np.count_nonzero(bits_of(old[name]) != bits_of(new[name]))) for name in old)
        assert one["changed"] == one["said_changed"] == sum(one["steps"].values()) == changed
        assert one["step"] == 100 * one["version"]
        assert one["total_bytes"] == sum(one["bytes"].values())
    for words in ("ratio", "by array, 2 deltas together", "what took the bytes", "by layer"):
        assert words in ran.out
    alone = deltastore("stats", three, "--packs-only", "--json").json["versions"]
    assert [one["bytes"] for one in alone] == [one["bytes"] for one in facts["versions"]]
    for words in ("bytes: a delta's packs and its manifest", "in all; without 1 anchor"):
        assert words in ran.out
    ran = deltastore("stats", three, "--packs-only", "--layers")
    for words in ("absolute", "B/written", "by layer, written"):
        assert words in ran.out
    for words in ("changed", "bound", "ratio"):
        assert words not in ran.out
    latest = deltastore("stats", three, "--from", "latest", "--json").json["versions"]
    assert latest == facts["versions"][2:]
    deltastore("stats", three, "--from", "7").fails_with(10, "no version is from 7 on; the stream has 0 to 2")
    deltastore("stats", three, "--to", "x").fails_with(2, "a version is a number")


def test_plots_are_written(deltastore: Run, three: Path, tmp_path: Path) -> None:
    png = tmp_path / "plot.png"
    assert f"drawn in {png}" in deltastore("stats", three, "--plot", png).out
    assert png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_statistics_are_shown_where_there_is_nothing_to_draw(
    deltastore: Run, three: Path, tmp_path: Path
) -> None:
    ran = deltastore("stats", three, "--to", "0", "--plot", tmp_path / "plot.png")
    assert (ran.status, ran.err) == (0, "")
    assert "anchor" in ran.out
    assert "nothing to draw" in ran.out
    facts = deltastore("stats", three, "--to", "0", "--plot", tmp_path / "plot.png", "--json").json
    assert (facts["plot"], "error" in facts) == (None, False)
    assert [one["version"] for one in facts["versions"]] == [0]
    assert not (tmp_path / "plot.png").exists()


def test_statistics_are_shown_where_drawing_fails(
    deltastore: Run, three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    ran = deltastore("stats", three, "--plot", tmp_path / "plot.png")
    ran.fails_with(1, "No space left")
    assert "by array" in ran.out
    facts = deltastore("stats", three, "--plot", tmp_path / "plot.png", "--json").json
    assert (facts["plot"], facts["error"]["code"]) == (None, "bad_argument")


def test_many_versions_are_one_filled_line(
    deltastore: Run, three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deltastore.history.plotting._BARS", 1)
    svg = tmp_path / "plot.svg"
    assert deltastore("stats", three, "--plot", svg).status == 0
    assert f"file://{three}" in svg.read_text(encoding="utf-8")


def test_where_nothing_can_be_drawn_is_known_before_anything_is_read(deltastore: Run, tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    for plot, words in (
        ("plot.pdf", ".png or an .svg"),
        ("no/p.png", "there is no folder"),
        ("folder.png", "folder"),
    ):
        deltastore("stats", tmp_path / "nothing", "--plot", tmp_path / plot).fails_with(1, words)


def test_a_plot_without_matplotlib_is_refused_before_anything_is_read(
    deltastore: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ran = deltastore("stats", tmp_path / "nothing", "--plot", tmp_path / "plot.png")
    ran.fails_with(1, "pip install 'deltastore[plot]'")


def test_diff_in_words_and_facts(deltastore: Run, three: Path) -> None:
    old, new = first_tensors(), third_tensors()
    facts = deltastore("diff", three, "0", "latest", "--json").json
    changed = {name: int(np.count_nonzero(bits_of(old[name]) != bits_of(new[name]))) for name in old}
    said = {one["name"]: one["changed"] for array in facts["arrays"] for one in array["differing"]}
    assert said == {name: count for name, count in changed.items() if count}
    assert (facts["equal"], facts["changed"]) == (False, sum(changed.values()))
    assert facts["manifests"]["kind"] == {"before": "anchor", "after": "delta"}
    assert facts["manifests"]["metadata step"] == {"before": None, "after": 200}
    ran = deltastore("diff", three, "0", "latest")
    assert ran.status == 0  # 1 would be an error
    assert f"{sum(changed.values()):,} of" in ran.out
    same = deltastore("diff", three, "1", "1")
    assert same.status == 0
    assert deltastore("diff", three, "1", "1", "--json").json["equal"] is True
    ran = deltastore("diff", three, "0", "2", "--tensor", "*.layers.*")
    assert "model.layers.1.mlp.weight" in ran.out
    assert "1 tensor without a difference" in ran.out
    deltastore("diff", three, "0", "9").fails_with(10, "no version 9")
    deltastore("diff", three, "0", "2", "--tensor", "nope").fails_with(1, "nope")


def test_why_follows_an_element_over_versions(deltastore: Run, three: Path) -> None:
    tensors = [first_tensors(), second_tensors(), third_tensors()]
    for index, flat in (("31,8", 1000), ("1001", 1001), ("-1,-1", 9599)):
        facts = deltastore("why", three, f"{EMBEDDING}[{index}]", "--json").json
        values = [int(bits_of(one[EMBEDDING])[flat]) for one in tensors]
        written = [
            version for version, bits in enumerate(values) if version == 0 or bits != values[version - 1]
        ]
        assert [one["version"] for one in facts["history"]] == written
        assert [one["bits"] for one in facts["history"]] == [f"{values[version]:04X}" for version in written]
        for one in facts["history"]:
            assert (three / one["object"]).is_file()
    ran = deltastore("why", three, f"{EMBEDDING}[1000]")
    assert f"{EMBEDDING}[31,8], BF16 of shape 300×32" in ran.out
    assert "-0.0" in ran.out
    steps = deltastore("why", three, "model.steps[]", "--json").json["history"]
    assert [one["value"] for one in steps][1] == str(2**63 + 1 - 2**64)
    deltastore("why", three, "model.embed_token.weight[0]").fails_with(1, EMBEDDING)
    deltastore("why", three, f"{EMBEDDING}[300,0]").fails_with(1, "out of range", "300")
    deltastore("why", three, f"{EMBEDDING}[a]").fails_with(1, "TENSOR[3,17]")


def test_a_damaged_stream_ends_each_with_12(deltastore: Run, three: Path) -> None:
    flip(only(three, f"packs/{2:020d}/*"), 90)
    deltastore("stats", three).fails_with(12, "packs/")
    deltastore("stats", three, "--packs-only").fails_with(12, "packs/")
    deltastore("diff", three, "0", "2").fails_with(12, "packs/")
    deltastore("why", three, "model.layers.1.mlp.weight[0]").fails_with(12, "packs/")


def test_a_folder_that_holds_no_stream(deltastore: Run, tmp_path: Path) -> None:
    for command in (("stats",), ("diff", "0", "1"), ("why", "w[0]")):
        verb, *rest = command
        deltastore(verb, tmp_path, *rest).fails_with(10, "no stream")


def test_a_stream_of_one_version(deltastore: Run, checkpoint: Path, tmp_path: Path) -> None:
    assert deltastore("init", tmp_path / "one", "--from", checkpoint).status == 0
    ran = deltastore("stats", tmp_path / "one")
    assert (ran.status, ran.err) == (0, "")
    assert "anchor" in ran.out
    write_file(tmp_path / "same.safetensors", first_tensors())
    assert deltastore("publish", tmp_path / "one", tmp_path / "same.safetensors").status == 0
    ran = deltastore("stats", tmp_path / "one")
    assert (ran.status, ran.err) == (0, "")
    svg = tmp_path / "plot.SVG"
    facts = deltastore("stats", tmp_path / "one", "--plot", svg, "--json").json
    assert (facts["versions"][1]["changed"], facts["plot"]) == (0, str(svg))
    assert b"<svg" in svg.read_bytes()
