"""The files of a checkpoint folder that travel with the weights: configuration, tokenizer, chat template."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deltastore.checkpoints.refusal import bad_checkpoint, cannot, shown
from deltastore.checkpoints.tensor_file import opened_regular
from deltastore.errors import InputError
from deltastore.format.limits import FILE_BYTES, FILE_COUNT

__all__ = ["Carried", "CarriedFile", "carried_files"]

_SUFFIXES: Final = (".json", ".txt", ".model", ".jinja", ".tiktoken", ".py")
_WEIGHT_INDEX: Final = ".index.json"
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}", re.ASCII)


@dataclass(frozen=True, slots=True)
class CarriedFile:
    """A file to carry: its name in the stream, where it is now, and its size in bytes when it was found."""

    name: str
    path: Path
    size: int

    def read(self) -> bytes:
        """The whole content, at most ``FILE_BYTES``; ``InputError("bad_checkpoint")`` if its size changed."""
        descriptor, size = opened_regular(self.path)
        with open(descriptor, "rb") as file:
            try:
                content = file.read(self.size + 1) if size == self.size else b""
            except OSError as error:
                raise cannot("read", self.path, error) from None
        if len(content) != self.size:
            raise bad_checkpoint(self.path, "its size changed while the checkpoint was read; start again")
        return content


@dataclass(frozen=True, slots=True)
class Carried:
    """The files to carry, by name, and one line for each that looks worth carrying but cannot be."""

    files: tuple[CarriedFile, ...]
    warnings: tuple[str, ...]


def carried_files(path: str | Path) -> Carried:
    """What to carry beside the weights of the checkpoint at ``path``; nothing is read yet.

    Files ending in .json .txt .model .jinja .tiktoken .py (no index of weights), and symbolic links to such.
    A checkpoint that is one file carries nothing. Raises ``InputError("bad_argument")`` for more than
    ``FILE_COUNT`` files, and ``InputError("bad_checkpoint")`` for a folder that cannot be listed.
    """
    folder = Path(path)
    files: list[CarriedFile] = []
    warnings: list[str] = []
    for name in _candidates(folder):
        found = _carried(folder / name)
        if isinstance(found, CarriedFile):
            files.append(found)
        elif found is not None:
            warnings.append(found)
    if len(files) > FILE_COUNT:
        message = f"{folder} has {len(files)} files to carry, above {FILE_COUNT}: move some to another folder"
        raise InputError("bad_argument", message, where=str(folder))
    return Carried(tuple(files), tuple(warnings))


def _candidates(folder: Path) -> list[str]:
    if not os.path.isdir(folder):
        return []
    try:
        names = [entry.name for entry in os.scandir(folder)]
    except OSError as error:
        raise cannot("list", folder, error) from None
    return sorted(name for name in names if name.endswith(_SUFFIXES) and not name.endswith(_WEIGHT_INDEX))


def _carried(path: Path) -> CarriedFile | str | None:
    """The file, a warning why it is left out, or None for what is no file at all."""
    if os.path.isdir(path):
        return None
    name = shown(path.name)
    if _FILE_NAME.fullmatch(path.name) is None:
        return f"{name} is not carried: names are A-Z a-z 0-9 . _ - and start with none of . and -; rename it"
    if not os.path.isfile(path):
        return f"{name} is not carried: it is not a regular file, nor a link to one"
    size = path.stat().st_size
    if size > FILE_BYTES:
        return f"{name} is not carried: it has {size} bytes, above {FILE_BYTES}"
    return CarriedFile(path.name, path, size)
