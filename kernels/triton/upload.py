"""Bringing tables and patches to the device beside the engine's work: pinned staging and a side stream.

On CPU tensors, under Triton's interpreter, the same calls copy at once and there is no stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

import numpy as np
import torch

from deltastore.kernels.pieces import Pieces
from deltastore.kernels.triton.windows import device_of

__all__ = ["SideStream", "Staged", "current_device", "side_stream"]

_PREPARED: Final = "triton side stream"
_ALIGN: Final = 64
_TYPES: Final = {"u1": torch.uint8, "u4": torch.int32, "i4": torch.int32, "i8": torch.int64}


class SideStream:
    """A stream for work that the engine does not wait for. One for each ``Pieces``."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    @contextmanager
    def entered(self, *, after_engine: bool = False) -> Iterator[None]:
        """Work inside goes to this stream; ``after_engine``: after all that the current stream has so far."""
        if self._stream is None:
            yield
            return
        if after_engine:
            self._stream.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._stream):
            yield

    def mark(self) -> torch.cuda.Event | None:
        """An event after everything so far."""
        if self._stream is None:
            return None
        event = torch.cuda.Event()
        event.record(self._stream)
        return event

    def hand_over(self, event: torch.cuda.Event | None, tensors: Sequence[torch.Tensor]) -> None:
        """Make the current stream wait for ``event``, and keep ``tensors`` until it has used them."""
        if event is None:
            return
        current = torch.cuda.current_stream(self.device)
        current.wait_event(event)
        for tensor in tensors:
            tensor.record_stream(current)


def current_device(device: torch.device) -> AbstractContextManager[None]:
    """Kernels launched inside go to ``device``, on its current stream."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def side_stream(pieces: Pieces) -> SideStream:
    """The side stream of these pieces, made at the first call."""
    stream: SideStream | None = pieces.prepared.get(_PREPARED)
    if stream is None:
        stream = SideStream(device_of(pieces))
        pieces.prepared[_PREPARED] = stream
    return stream


class Staged:
    """Arrays in one buffer of this process that nothing else can change, and their copy on the device.

    ``host``: the staged arrays (n,) or (n, k), as given; ``tensors``: the same on the device, uint8, int32
    (also for uint32) or int64. The copy is started on the current stream by ``start``.
    """

    def __init__(self, device: torch.device, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        ends = np.cumsum([0, *(-(-array.nbytes // _ALIGN) * _ALIGN for array in arrays)]).tolist()
        self._buffer = torch.empty(ends[-1], dtype=torch.uint8, pin_memory=device.type == "cuda")
        octets = self._buffer.numpy()
        self.host = []
        for array, at in zip(arrays, ends, strict=False):
            part = octets[at : at + array.nbytes].view(array.dtype).reshape(array.shape)
            part[...] = array
            self.host.append(part)
        self._ends = ends
        self._device = device
        self.tensors: list[torch.Tensor] = []

    def start(self) -> list[torch.Tensor]:
        """Start the one copy; the tensors may be used on the current stream."""
        whole = self._buffer.to(self._device, non_blocking=True)
        for part, at in zip(self.host, self._ends, strict=False):
            octets = whole[at : at + part.nbytes]
            self.tensors.append(octets.view(_TYPES[part.dtype.str[1:]]).reshape(part.shape))
        return self.tensors
