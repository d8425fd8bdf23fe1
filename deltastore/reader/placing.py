"""Which kind of targets a reader's tensors are."""

from __future__ import annotations

from typing import Any

from deltastore.errors import InputError
from deltastore.format.table import TensorTable
from deltastore.layout.device import is_on_device
from deltastore.layout.memory import LiveTensors, check_named
from deltastore.layout.pieces import Layout
from deltastore.reader.host import HostTargets
from deltastore.reader.targets import Targets

__all__ = ["targets_of"]


def targets_of(
    table: TensorTable, tensors: LiveTensors, *, threads: int, layout: Layout | None = None
) -> Targets[Any]:
    """The tensors as memory to write into. ``threads``: how many kernels of the CPU may use.

    Raises what ``Targets`` says.
    """
    check_named(tensors)
    if any(is_on_device(tensor) for tensor in tensors.values()):
        try:
            from deltastore.reader.gpu import GpuTargets
        except ImportError as error:
            raise InputError("wrong_memory", f"tensors stand on a GPU, and {error}") from None
        return GpuTargets(table, tensors, threads=threads, layout=layout)
    return HostTargets(table, tensors, threads=threads, layout=layout)
