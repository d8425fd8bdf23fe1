"""One process's shard of a version as a file: every parameter as that process would hold it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from deltastore.checkpoints.arrival import draft_folder, prepare_folder
from deltastore.checkpoints.header import StoredTensor, header_bytes
from deltastore.checkpoints.refusal import cannot
from deltastore.checkpoints.shard_files import sync_folder, write_synced
from deltastore.format.dtypes import Dtype
from deltastore.format.table import TensorSpec
from deltastore.layout.layout_object import LayoutObject
from deltastore.layout.pieces import Layout
from deltastore.reader.following import Synced
from deltastore.reader.opening import open_reader
from deltastore.stores.base import Store

__all__ = ["LAYOUT_FILE", "PARAMETERS_FILE", "Pulled", "pull_shard"]

PARAMETERS_FILE: Final = "parameters.safetensors"
LAYOUT_FILE: Final = "layout.json"

_NUMPY: Final = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "C64": "<c8", "BOOL": "|b1"}


@dataclass(frozen=True, slots=True)
class Pulled:
    """A shard that is complete on disk. ``nbytes`` of parameters; ``synced`` says what was fetched for it."""

    directory: Path
    params: int
    nbytes: int
    synced: Synced


async def pull_shard(
    store: Store, layout: Layout, version: int | None, out: str | Path, *, force: bool = False
) -> Pulled:
    """Write the parameters of ``layout`` as of ``version`` (None: the newest) into directory ``out``.

    ``parameters.safetensors`` has every parameter in its own shape, padding as zeros; ``layout.json`` says
    which elements of which tensors they are. The file is mapped and written in place, by a reader: memory is
    the kernel's to take back. Both appear when they are complete, the layout last: wherever a crash comes, a
    layout in the directory is that of its parameters.

    Raises what a reader raises, and ``InputError("bad_argument")`` for a directory that holds files, unless
    ``force`` says to replace these two.
    """
    folder = Path(out)
    prepare_folder(folder, overwrite=force, how="its parameters with force (--force)")
    with draft_folder(folder) as draft:
        params = await asyncio.to_thread(_mapped, draft / PARAMETERS_FILE, layout)
        reader = await open_reader(store, params, layout=layout)
        synced = await reader.sync(version)
        await asyncio.to_thread(_finish, draft, folder, params, layout)
    return Pulled(folder, len(layout.params), layout.nbytes, synced)


def _mapped(path: Path, layout: Layout) -> dict[str, Any]:
    """A file of zeros with the header of all parameters, and every parameter of it in memory."""
    stored, end = [], 0
    for param in sorted(layout.params, key=lambda param: (-param.dtype.itemsize, param.name)):
        spec = TensorSpec(param.name, param.shape, param.dtype)
        stored.append(StoredTensor(spec, end))
        end += spec.nbytes
    header = header_bytes(stored)
    try:
        with path.open("wb") as file:
            file.write(header)
            file.truncate(len(header) + end)
        return {one.spec.name: _map(path, len(header) + one.begin, one.spec) for one in stored}
    except OSError as error:
        raise cannot("write", path, error) from None


def _map(path: Path, offset: int, spec: TensorSpec) -> Any:
    kind = np.dtype(_kind(spec.dtype))
    if not spec.elements:
        return np.zeros(spec.shape, kind)
    return np.memmap(path, dtype=kind, mode="r+", offset=offset, shape=spec.shape)


def _kind(dtype: Dtype) -> str:
    """The NumPy type of the same name; raw bits where NumPy has none."""
    if dtype.name in _NUMPY:
        return _NUMPY[dtype.name]
    return f"<{'i' if dtype.name.startswith('I') else 'u'}{dtype.itemsize}"


def _finish(draft: Path, folder: Path, params: dict[str, Any], layout: Layout) -> None:
    for param in params.values():
        if isinstance(param, np.memmap):
            param.flush()
    write_synced(draft / LAYOUT_FILE, LayoutObject.of(layout).to_bytes())
    try:
        with (draft / PARAMETERS_FILE).open("rb") as file:
            os.fsync(file.fileno())
        (folder / LAYOUT_FILE).unlink(missing_ok=True)
        for name in (PARAMETERS_FILE, LAYOUT_FILE):
            sync_folder(folder)
            os.replace(draft / name, folder / name)
    except OSError as error:
        raise cannot("write", folder, error) from None
    sync_folder(folder)
