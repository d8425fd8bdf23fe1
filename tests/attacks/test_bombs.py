"""What claims to be huge, or is much of something, takes no more memory than a few times its bytes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deltastore.errors import CorruptError
from deltastore.format.records import parse_record

from .resealing import compact, resealed

KIBIBYTES = 128
MOST_MIB = 40
"""Lists within lists take some forty times their bytes; with an error for each they took a thousand times."""

CODES = {"bad_json", "bad_anchor", "bad_layout", "too_large", "missing_tensor"}


@pytest.mark.spec("DS004", "DS100")
@pytest.mark.timeout(200)
def test_no_bomb_goes_off(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.attacks.bombs", str(tmp_path), str(KIBIBYTES)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=180)
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    assert len(lines) > 30
    for name, ends, peak in lines:
        for end in ends.split():
            assert end == "passed" or end.split("/")[0] in CODES, (name, ends)
        assert ends.split()[0] != "passed", name
        assert int(peak) < MOST_MIB, (name, peak)


def test_an_object_of_too_many_members_is_refused_before_each_is_looked_at() -> None:
    fields = {"format": 1, "kind": "delta", "metadata": {f"{key:x}": 0 for key in range(66_000)}}
    with pytest.raises(CorruptError, match="66000 members") as caught:
        parse_record(compact(resealed(fields)), 6)
    assert (caught.value.code, caught.value.rule) == ("bad_json", "DS013")
