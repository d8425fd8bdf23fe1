"""Damage to a stream in a folder, as a disk or an attacker would do it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deltastore.format.canonical import canonical_bytes, parse_canonical, seal


def only(folder: Path, pattern: str) -> Path:
    """The one file that matches."""
    (found,) = sorted(folder.glob(pattern))
    return found


def record_path(stream: Path, slot: int) -> Path:
    return stream / "log" / f"{slot:020d}.json"


def truncate(path: Path, fewer: int = 1) -> None:
    path.write_bytes(path.read_bytes()[:-fewer])


def flip(path: Path, at: int) -> None:
    """Turn over the lowest bit of one byte."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


def rewrite(path: Path, **changes: Any) -> None:
    """Change members of a JSON object and seal it again, as only a writer with other ideas would."""
    fields = parse_canonical(path.read_bytes(), str(path))
    path.write_bytes(canonical_bytes(seal({**fields, **changes})))


def fields_of(path: Path) -> dict[str, Any]:
    return parse_canonical(path.read_bytes(), str(path))


def largest(folder: Path, pattern: str) -> Path:
    """The largest file that matches."""
    return max(
        (path for path in folder.glob(pattern) if path.is_file()), key=lambda path: path.stat().st_size
    )
