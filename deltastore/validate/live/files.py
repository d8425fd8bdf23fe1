"""The files that live weights come in: a checkpoint, parameters with a layout, or attestations of readers."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from deltastore.checkpoints.checkpoint import SUFFIX, Checkpoint
from deltastore.checkpoints.refusal import cannot
from deltastore.checkpoints.tensor_file import opened_regular
from deltastore.errors import CorruptError, InputError
from deltastore.format.attestation import ATTESTATION_BYTES, Attestation
from deltastore.format.limits import TABLE_BYTES
from deltastore.layout.layout_object import LayoutObject
from deltastore.layout.pieces import Layout

__all__ = ["Attestations", "Dump", "LiveFiles", "open_live", "read_layout"]

LAYOUT_FILE: Final = "layout.json"
_JSON: Final = ".json"


@dataclass(frozen=True, slots=True)
class Dump:
    """Tensors in safetensors files, open. ``layout``: that of the ``layout.json`` that stands beside them."""

    name: str
    checkpoint: Checkpoint
    layout: Layout | None

    @property
    def names(self) -> tuple[str, ...]:
        """What each source is called."""
        return (self.name,)

    def close(self) -> None:
        """Close the files."""
        self.checkpoint.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Attestations:
    """What readers attest, by file name."""

    attestations: tuple[tuple[str, Attestation], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """What each source is called."""
        return tuple(name for name, _ in self.attestations)

    @property
    def claimed(self) -> tuple[int, ...]:
        """The versions that readers claim to be at, ascending, each once."""
        return tuple(sorted({one.version for _, one in self.attestations}))

    @property
    def claims(self) -> tuple[tuple[int, str, int, str], ...]:
        """Of each: version, label, time in milliseconds since 1970, nonce."""
        return tuple((one.version, one.label, one.time, one.nonce) for _, one in self.attestations)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        """Nothing is open."""


LiveFiles = Dump | Attestations


def open_live(path: str | Path) -> LiveFiles:
    """A ``.safetensors`` file or a folder with some; or an attestation, or a folder of nothing else.

    Raises ``InputError("bad_checkpoint")`` for a path with neither, ``CorruptError`` for an attestation or a
    layout that breaks a rule. Close it, or use it as a context manager.
    """
    path = Path(path)
    if not path.is_dir():
        if path.name.endswith(SUFFIX):
            return _dump(path, path.parent)
        return Attestations(((path.name, _attestation(path)),))
    try:
        names = sorted(entry.name for entry in os.scandir(path))
    except OSError as error:
        raise cannot("list", path, error) from None
    if any(name.endswith(SUFFIX) for name in names):
        return _dump(path, path)
    found = [name for name in names if name.endswith(_JSON) and not name.startswith(".")]
    if not found:
        raise InputError(
            "bad_checkpoint",
            f"{path} has no *.safetensors file and no attestation: give a dump of an engine, or what "
            "reader.attest(path) wrote",
            where=str(path),
        )
    return Attestations(tuple((name, _attestation(path / name)) for name in found))


def read_layout(path: str | Path) -> Layout:
    """The layout in a file, as ``deltastore layout --json`` or ``pull`` write it."""
    path = Path(path)
    return LayoutObject.from_bytes(_read(path, TABLE_BYTES, "a layout"), str(path)).layout()


def _dump(path: Path, folder: Path) -> Dump:
    with ExitStack() as opened:
        checkpoint = opened.enter_context(Checkpoint.open(path))
        beside = folder / LAYOUT_FILE
        layout = read_layout(beside) if os.path.lexists(beside) else None
        opened.pop_all()
    return Dump(str(path), checkpoint, layout)


def _attestation(path: Path) -> Attestation:
    return Attestation.from_bytes(_read(path, ATTESTATION_BYTES, "an attestation"), str(path))


def _read(path: Path, limit: int, what: str) -> bytes:
    descriptor, size = opened_regular(path)
    with open(descriptor, "rb") as file:
        if size > limit:
            message = f"{path} has {size} bytes, above {limit}: it is not {what}"
            raise CorruptError("too_large", message, where=str(path), rule="DS100")
        return file.read(limit)
