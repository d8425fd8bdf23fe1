"""Numbers, times and names for people."""

from __future__ import annotations

import pytest

from deltastore.cli.wording import moment, per_element, percent, plain, plural, size


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1475, "1.44 KiB"),
        (10235, "10.0 KiB"),
        (10240, "10.0 KiB"),
        (102297, "99.9 KiB"),
        (102400, "100 KiB"),
        (1023487, "999 KiB"),
        (1023488, "0.98 MiB"),
        (1 << 20, "1.00 MiB"),
        (61 * 10**9, "56.8 GiB"),
        (2**53 - 1, "8.00 PiB"),
        (10**30, "888178419700125 PiB"),
    ],
)
def test_size(nbytes: int, text: str) -> None:
    assert size(nbytes) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [
        (0, 0, "0 %"),
        (0, 5, "0 %"),
        (5, 5, "100 %"),
        (9, 5, "100 %"),
        (1, 3, "33.33 %"),
        (53, 10000, "0.53 %"),
        (1, 10000, "0.01 %"),
        (1, 30000, "0.003 %"),
        (1, 10**6, "0.0001 %"),
        (1, 10**12, "<0.0001 %"),
        (99998, 100000, ">99.99 %"),
        (9998, 10000, "99.98 %"),
    ],
)
def test_percent(part: int, whole: int, text: str) -> None:
    assert percent(part, whole) == text


def test_per_element() -> None:
    assert per_element(144, 100) == 1.44
    assert per_element(0, 0) is None


def test_plural() -> None:
    assert [plural(count, "pack") for count in (0, 1, 1234)] == ["0 packs", "1 pack", "1,234 packs"]
    assert plural(2, "patch", "patches") == "2 patches"


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01 00:00:00"),
        (1_700_000_000_999, "2023-11-14 22:13:20"),
        (2**53 - 1, "9007199254740991"),
    ],
)
def test_moment(milliseconds: int, text: str) -> None:
    assert moment(milliseconds) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("model.layers.3", "model.layers.3"),
        ("größe 大 🙂", "größe 大 🙂"),
        ("a\x1b[31mb", r"a\x1b[31mb"),
        ("a\x9b31mb", r"a\x9b31mb"),
        ("a\r\n\tb", r"a\r\n\tb"),
        ("a\u202eb\u2066c", r"a\u202eb\u2066c"),
        ("a\u2028b", r"a\u2028b"),
        ("a\udcffb", r"a\udcffb"),
        ("\x00\x7f", r"\x00\x7f"),
        (None, "None"),
        (12, "12"),
    ],
)
def test_plain(text: object, shown: str) -> None:
    assert plain(text) == shown
