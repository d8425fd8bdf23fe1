"""Numbers, times and names from the store as people read them."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from typing import Final

__all__ = ["moment", "per_element", "percent", "plain", "plural", "size"]

_UNITS: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def plain(text: object) -> str:
    """Text as one line that cannot steer a terminal.

    Names, labels and metadata come from the store: control characters, line breaks, direction marks and
    lone surrogates are shown as escapes.
    """
    return "".join(
        letter if unicodedata.category(letter) not in _UNSEEN else ascii(letter)[1:-1] for letter in str(text)
    )


def size(nbytes: int) -> str:
    """Bytes with a binary unit and three digits: ``512 B``, ``1.44 KiB``, ``23.1 MiB``, ``640 GiB``."""
    if nbytes < 1024:
        return f"{nbytes} B"
    power = 1
    while nbytes >= 999.5 * 1024**power and power < len(_UNITS):
        power += 1
    value, unit = nbytes / 1024**power, _UNITS[power - 1]
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {unit}"


def percent(part: int, whole: int) -> str:
    """A share with two digits after the point, or as many as show that it is not 0; 100 % is all of it."""
    if part == 0 or whole == 0:
        return "0 %"
    if part >= whole:
        return "100 %"
    share = 100 * part / whole
    if share >= 99.99:
        return ">99.99 %"
    if share >= 0.01:
        return f"{share:.2f} %"
    return f"{share:.1g} %" if share >= 0.0001 else "<0.0001 %"


def per_element(nbytes: int, changed: int) -> float | None:
    """Bytes per changed element, to four digits after the point; None where nothing changed."""
    return round(nbytes / changed, 4) if changed else None


def plural(count: int, one: str, many: str = "") -> str:
    """``1 pack``, ``1,234 packs``; ``many`` where an s does not do."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def moment(milliseconds: int) -> str:
    """A record's time in UTC; a time beyond the calendar as the number that it is."""
    try:
        return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)
