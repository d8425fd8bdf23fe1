"""What the log and a manifest look like, also where somebody wrote to steer a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.tampering import fields_of, only, record_path, rewrite

HOSTILE = "[red]0[/red] \x1b[2J\r\n\u202e\u2028:boom:"
SHOWN = r"[red]0[/red] \x1b[2J\r\n\u202e\u2028:boom:"


def test_log_is_a_table_with_the_newest_last(deltastore: Run, stream: Path) -> None:
    ran = deltastore("log", stream)
    rows = [line.split() for line in ran.out.splitlines()]
    assert rows[0] == [
        "slot",
        "kind",
        "version",
        "base",
        "epoch",
        "changed",
        "bytes",
        "step",
        "time",
        "(UTC)",
    ]
    assert [row[:2] for row in rows[1:]] == [
        ["0", "birth"],
        ["1", "epoch"],
        ["2", "anchor"],
        ["3", "epoch"],
        ["4", "delta"],
    ]
    assert rows[3][2:6] == ["0", "1", "100", "%"]
    assert rows[5][2:5] == ["1", "0", "2"]
    assert rows[5][9] == "100"
    assert ran.err == ""


def test_log_as_json_is_one_object_a_line(deltastore: Run, stream: Path) -> None:
    lines = deltastore("log", stream, "--json").lines
    assert [facts["kind"] for facts in lines] == ["birth", "epoch", "anchor", "epoch", "delta"]
    assert [facts["slot"] for facts in lines] == [0, 1, 2, 3, 4]
    assert lines[3]["resumes"] == 0
    stored = fields_of(record_path(stream, 4))
    assert lines[4]["metadata"] == {"step": 100}
    for name in ("version", "base", "epoch", "time", "digest", "sha256"):
        assert lines[4][name] == stored[name]
    for name in ("changed", "elements", "bytes"):
        assert lines[4][name] == stored["statistics"][name]


@pytest.mark.parametrize(
    ("limit", "slots"), [("1", [4]), ("3", [2, 3, 4]), ("5", [0, 1, 2, 3, 4]), ("99", [0, 1, 2, 3, 4])]
)
def test_limit_keeps_the_last_records(deltastore: Run, stream: Path, limit: str, slots: list[int]) -> None:
    lines = deltastore("log", stream, "--limit", limit, "--json").lines
    assert [facts["slot"] for facts in lines] == slots


def test_the_label_is_in_the_log(deltastore: Run, stream: Path, third: Path) -> None:
    assert deltastore("publish", stream, third, "--label", "the trainer").status == 0
    epochs = [facts for facts in deltastore("log", stream, "--json").lines if facts["kind"] == "epoch"]
    assert [facts["writer"] for facts in epochs] == ["", "", "the trainer"]


def test_show_as_json_is_the_record_as_it_stands(deltastore: Run, stream: Path) -> None:
    for version, slot in (("0", 2), ("1", 4), ("latest", 4)):
        assert deltastore("show", stream, version, "--json").json == fields_of(record_path(stream, slot))


def test_show_says_where_everything_stands(deltastore: Run, stream: Path) -> None:
    anchor = deltastore("show", stream, "0").out
    delta = deltastore("show", stream, "1").out
    assert anchor.startswith("version 0, an anchor\n")
    assert delta.startswith("version 1, a delta on version 0\n")
    for path in (*stream.glob("files/*"), only(stream, "anchors/*/*")):
        assert str(path.relative_to(stream)) in anchor
    assert str(only(stream, "packs/*/*").relative_to(stream)) in delta
    assert "  step = 100\n" in delta
    assert fields_of(record_path(stream, 4))["digest"] in delta
    for name in ("config.json", "tokenizer.json"):
        assert f"  {name}, " in anchor


def test_what_the_store_says_cannot_steer_the_terminal(deltastore: Run, stream: Path) -> None:
    metadata = {"step": HOSTILE, "note": HOSTILE}
    rewrite(record_path(stream, 4), metadata=metadata)
    for command in ("log", "show latest", "follow --from 0 --timeout 0"):
        verb, *rest = command.split()
        ran = deltastore(verb, stream, *rest)
        assert ran.status == 0
        assert SHOWN in ran.out
    assert deltastore("show", stream, "latest", "--json").json["metadata"] == metadata


def test_a_record_of_an_unknown_kind_is_shown_as_it_is_called(deltastore: Run, stream: Path) -> None:
    epoch = fields_of(record_path(stream, 2))["epoch"]
    rewrite(record_path(stream, 3), kind="[b]x\x1b[0m", ignorable=True, epoch=epoch)
    record_path(stream, 4).unlink()
    ran = deltastore("log", stream)
    assert ran.status == 0
    assert r"[b]x\x1b[0m" in ran.out
    assert deltastore("log", stream, "--json").lines[3]["epoch"] == epoch


def test_an_error_cannot_steer_the_terminal(deltastore: Run, stream: Path) -> None:
    deltastore("publish", stream, "\x1b[2J[red]\n").fails_with(1, r"\x1b[2J[red]")
    rewrite(record_path(stream, 4), kind="\x1b[2J[red]\n")
    ran = deltastore("log", stream)
    assert ran.status == 13
    assert "\x1b" not in ran.err
    assert ran.err.count("\n") == 1
