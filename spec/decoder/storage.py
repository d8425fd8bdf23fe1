"""SPEC 3: keys and bytes; the store is a local directory."""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from spec.decoder.refusal import SpecError, need

SEGMENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


@contextmanager
def at(key: str) -> Iterator[None]:
    """What is refused inside is refused in this object, unless a closer one is named."""
    try:
        yield
    except SpecError as error:
        error.where = error.where or key
        raise


def is_there(root: Path, key: str, *, check: str = "DS063") -> bool:
    """DS001, SPEC 18.5: whether a key has an object; a folder is none, what else is no file is refused."""
    with at(key):
        need(len(key) <= 1024 and all(map(SEGMENT.fullmatch, key.split("/"))), "bad_key", "DS001", key)
        steps = key.split("/")
        for depth in range(1, len(steps) + 1):
            path = root / "/".join(steps[:depth])
            try:
                mode = path.lstat().st_mode
            except (FileNotFoundError, NotADirectoryError):
                return False
            own = not stat.S_ISLNK(mode)
            need(own, "bad_key", "DS001", f"{key} is a link, which may lead out of the store")
        plain = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
        need(plain, "bad_length", check, f"{key} is neither a file nor a folder")
        return stat.S_ISREG(mode)


def listed(root: Path, prefix: str) -> list[str]:
    """The keys below a prefix that ends in a slash; what has no name of a key, or is no file, is none."""
    folder, keys = root / prefix, []
    for path in sorted(folder.rglob("*")):
        key = path.relative_to(folder).as_posix()
        if path.is_file() and not path.is_symlink() and all(map(SEGMENT.fullmatch, key.split("/"))):
            keys.append(key)
    return keys


def get(root: Path, key: str, limit: int, *, longer: str = "DS100", absent: str = "lost_object") -> bytes:
    """DS001, DS004, DS063: the bytes of a key, at most `limit` of them; `longer` is the MUST that sets it."""
    with at(key):
        there = is_there(root, key, check="DS063" if longer == "DS100" else longer)
        need(there, absent, "DS063" if absent == "lost_object" else None, f"{key} is not there")
        size = (root / key).stat().st_size
        need(size <= limit, "too_large", longer, f"{key} is longer than {limit} bytes")
        return (root / key).read_bytes()


def get_named(root: Path, key: str, nbytes: int, sha256: str, check: str) -> bytes:
    """The bytes of a key that something names by length and hash."""
    data = get(root, key, nbytes, longer=check)
    with at(key):
        need(len(data) == nbytes, "bad_length", check, f"{key} is shorter than what names it says")
        need(hashlib.sha256(data).hexdigest() == sha256, "bad_hash", check, f"the sha256 of {key}")
    return data
