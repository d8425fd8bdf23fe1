"""A safetensors checkpoint: one file, or a folder of shards with or without an index."""

from __future__ import annotations

import os
import re
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np

from deltastore.checkpoints.header import HEADER_BYTES, StoredTensor
from deltastore.checkpoints.refusal import bad_checkpoint, cannot, shown
from deltastore.checkpoints.strict_json import parse_object
from deltastore.checkpoints.tensor_file import TensorFile, opened_regular
from deltastore.errors import InputError
from deltastore.format.table import TensorSpec

__all__ = ["INDEX_NAME", "SUFFIX", "Checkpoint"]

INDEX_NAME: Final = "model.safetensors.index.json"
SUFFIX: Final = ".safetensors"
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+=@ -]*\.safetensors", re.ASCII)


class Checkpoint:
    """The tensors of a checkpoint, read by position from files that stay open until :meth:`close`."""

    def __init__(self, path: Path, files: list[TensorFile]) -> None:
        """Take over open files; ``InputError("bad_checkpoint")`` for a tensor that two of them hold."""
        self.path = path
        self._files = files
        self._places: dict[str, tuple[TensorFile, StoredTensor]] = {}
        for file in files:
            for name, tensor in file.tensors.items():
                if name in self._places:
                    other = self._places[name][0].path.name
                    problem = f"tensor {shown(name)} is also in {shown(other)}; remove one of the files"
                    raise bad_checkpoint(file.path, problem)
                self._places[name] = (file, tensor)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a ``.safetensors`` file, or a folder of them; only headers are read.

        In a folder ``model.safetensors.index.json`` says which files count; without it all ``*.safetensors``
        do. Symbolic links to files are followed. Raises ``InputError("bad_checkpoint")``, naming the file and
        the tensor, and ``InputError("wrong_dtype")`` for an element type that cannot be carried.
        """
        path = Path(path)
        with ExitStack() as opened:
            if os.path.isdir(path):
                files = _open_folder(path, opened)
            else:
                files = [opened.enter_context(TensorFile(path))]
            checkpoint = cls(path, files)
            opened.pop_all()
        return checkpoint

    @property
    def tensors(self) -> list[TensorSpec]:
        """Every tensor, in the order of the files and of the data in them."""
        return [tensor.spec for _, tensor in self._places.values()]

    def locate(self, name: str) -> tuple[TensorFile, StoredTensor]:
        """The file that holds a tensor, and where in it; ``InputError("unknown_tensor")``."""
        found = self._places.get(name)
        if found is None:
            message = (
                f"{shown(str(self.path), 400)} has no tensor {shown(name)}; give a name of the checkpoint"
            )
            raise InputError("unknown_tensor", message, where=name)
        return found

    def bits(self, name: str) -> np.ndarray[Any, Any]:
        """One whole tensor, read into memory: little-endian unsigned of its width, not to be written to.

        Raises ``InputError("unknown_tensor")``, and ``InputError("bad_checkpoint")`` if the file has changed.
        """
        file, tensor = self.locate(name)
        out = np.empty(tensor.spec.elements, dtype=tensor.spec.dtype.storage)
        file.read_into(out.view(np.uint8), tensor, 0)
        out.flags.writeable = False
        return out.reshape(tensor.spec.shape)

    def close(self) -> None:
        """Close every file; may be called more than once."""
        for file in self._files:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _open_folder(folder: Path, opened: ExitStack) -> list[TensorFile]:
    index = folder / INDEX_NAME
    if os.path.lexists(index):
        return _open_indexed(folder, _weight_map(index), opened)
    try:
        names = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(SUFFIX))
    except OSError as error:
        raise cannot("list", folder, error) from None
    if not names:
        raise bad_checkpoint(folder, "the folder has no *.safetensors file; give the folder of a checkpoint")
    return [opened.enter_context(TensorFile(folder / name)) for name in names]


def _open_indexed(folder: Path, weight_map: dict[str, str], opened: ExitStack) -> list[TensorFile]:
    files = {
        name: opened.enter_context(TensorFile(folder / name)) for name in sorted(set(weight_map.values()))
    }
    for tensor, name in weight_map.items():
        if tensor not in files[name].tensors:
            problem = f"tensor {shown(tensor)} is not in {name}, where the index has it; copy the file again"
            raise bad_checkpoint(folder / INDEX_NAME, problem)
    return list(files.values())


def _weight_map(index: Path) -> dict[str, str]:
    descriptor, size = opened_regular(index)
    with open(descriptor, "rb") as file:
        if size > HEADER_BYTES:
            raise bad_checkpoint(index, f"{size} bytes, above {HEADER_BYTES}: not an index; remove it")
        weight_map = parse_object(file.read(size), index, "the index").get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise bad_checkpoint(index, "weight_map is not a map of tensors to files; write the index again")
    for tensor, name in weight_map.items():
        # A name with a slash could read any file of the machine.
        if not isinstance(name, str) or _PLAIN_NAME.fullmatch(name) is None:
            problem = f"tensor {shown(tensor)} is in {shown(str(name))}, not a file name ending in {SUFFIX}"
            raise bad_checkpoint(index, f"{problem}; write the index again")
    return weight_map
