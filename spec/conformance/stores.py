"""The cases of whole stores: sound ones, and sound ones after some edits."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from spec.conformance.case import Case, Fields, expects, refuses
from spec.conformance.vectors import VECTORS, read

STREAMS = VECTORS / "streams"


class Stores:
    """Copies of the stores in a folder, so that no implementation sees the vectors themselves."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._edited: dict[str, tuple[Path, Fields | None]] = {}

    def sound_path(self, name: str) -> Path:
        """Where a store will be as it is."""
        return self._folder / name

    @contextmanager
    def sound(self, name: str) -> Iterator[Path]:
        """A store as it is."""
        copy = self.sound_path(name)
        if not copy.exists():
            shutil.copytree(STREAMS / name, copy)
        yield copy

    def edited_path(self, name: str) -> Path:
        """Where an edited store will be, and none before it was: what is kept by path may be kept."""
        return self._folder / "edited" / hashlib.sha256(name.encode()).hexdigest()[:16]

    @contextmanager
    def edited(self, row: Fields) -> Iterator[Path]:
        """A store after its edits, until another one of its base is asked for."""
        path, base = self.edited_path(row["name"]), row["base"]
        if not path.exists():
            self._working_copy(base).rename(path)
            self._edited[base] = (path, row)
            for edit in row["edits"]:
                _put(path / edit["key"], self._content(edit, base), self._linked(edit, base))
                _put_oddly(path / edit["key"], edit)
        yield path

    def _working_copy(self, base: str) -> Path:
        """A copy of a sound store that may be edited; the edits of the one before are undone."""
        if base not in self._edited:
            copy = self._folder / "edited" / base
            shutil.copytree(STREAMS / base, copy)
            return copy
        path, row = self._edited[base]
        for edit in row["edits"] if row else ():
            sound = STREAMS / base / edit["key"]
            _put(path / edit["key"], sound.read_bytes() if sound.exists() else None, None)
        return path

    def _linked(self, edit: Fields, base: str) -> Path | None:
        if "link" not in edit:
            return None
        elsewhere: Path = self._folder / edit["link"]
        elsewhere.unlink(missing_ok=True)
        if (STREAMS / base / edit["key"]).exists():
            shutil.copyfile(STREAMS / base / edit["key"], elsewhere)
        return elsewhere

    def _content(self, edit: Fields, base: str) -> bytes | None:
        """What an object becomes; None where it goes."""
        if "pipe" in edit or "folder" in edit:
            return None
        if "splice" in edit:
            data: bytes = (STREAMS / base / edit["key"]).read_bytes()
            for at, length, text in reversed(edit["splice"]):
                data = data[:at] + text.encode("ascii") + data[at + length :]
            return data
        if "copy" in edit:
            return bytes((STREAMS / base / edit["copy"]).read_bytes())
        if "text" in edit:
            return bytes(edit["text"], "ascii")
        if "zeros" in edit:
            return bytes(edit["zeros"])
        return bytes.fromhex(edit["hex"]) if "hex" in edit else None


def _put_oddly(path: Path, edit: Fields) -> None:
    """What is no file."""
    if "pipe" in edit:
        os.mkfifo(path)
    if "folder" in edit:
        path.mkdir()


def _put(path: Path, data: bytes | None, link: Path | None) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    if link is not None:
        path.symlink_to(link)
    elif data is not None:
        path.write_bytes(data)


def sound_cases(stores: Stores) -> Iterator[Case]:
    """Every version of every sound store, the newest also without its number; and that nothing is wrong."""
    for file in sorted(STREAMS.glob("*.json")):
        versions = read(f"streams/{file.name}")["versions"]
        path = str(stores.sound_path(file.stem))
        asked: list[tuple[str, Fields, Fields]] = []
        for version, facts in versions.items():
            tensors = {name: _facts(one) for name, one in facts["tensors"].items()}
            expected = {"version": int(version), "digest": facts["digest"], "tensors": tensors}
            asked.append((f"version {version}", {"op": "stream", "version": int(version)}, expected))
        newest = {"version": max(map(int, versions))}
        asked.append(("the newest version", {"op": "stream", "version": None}, newest))
        asked.append(("all of it", {"op": "check"}, {"versions": len(versions)}))
        prepare: Callable[[], AbstractContextManager[object]] = partial(stores.sound, file.stem)
        for name, request, expected in asked:
            judge = expects(expected)
            yield Case("streams", f"{file.stem}, {name}", request | {"path": path}, judge, prepare)


def _facts(one: Fields) -> Fields:
    """Element type, shape and hash of a tensor, of which older files have the bits."""
    sha256 = one.get("sha256") or hashlib.sha256(bytes.fromhex(one["bits"])).hexdigest()
    return {"dtype": one["dtype"], "shape": one["shape"], "sha256": sha256}


def edited_cases(stores: Stores) -> Iterator[Case]:
    """That nothing is wrong with stores that are sound after some edits, and what their newest version is."""
    for row in read("edited.json"):
        path = str(stores.edited_path(row["name"]))
        prepare: Callable[[], AbstractContextManager[object]] = partial(stores.edited, row)
        asked: Fields = {"op": "check", "path": path}
        yield Case("edited.json", row["name"], asked, expects({"versions": row["versions"]}), prepare)
        asked = {"op": "stream", "path": path, "version": None}
        newest = expects({"version": row["version"], "digest": row["digest"]})
        yield Case("edited.json", f"{row['name']}, read", asked, newest, prepare)


def broken_cases(stores: Stores) -> Iterator[Case]:
    """What a validator finds in every broken store, and what a reader of a version must refuse."""
    for row in read("broken.json"):
        path = str(stores.edited_path(row["name"]))
        prepare: Callable[[], AbstractContextManager[object]] = partial(stores.edited, row)
        asked: Fields = {"op": "check", "path": path}
        yield Case("broken.json", row["name"], asked, refuses(row, where=True), prepare)
        if row["version"] is not None:
            asked = {"op": "stream", "path": path, "version": row["version"]}
            yield Case("broken.json, read", row["name"], asked, refuses(row), prepare)
