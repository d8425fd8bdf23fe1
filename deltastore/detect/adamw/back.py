"""One step back: for every part that an optimizer moved, what its inversion needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from deltastore.detect.adamw.attachment import Attachment, Held
from deltastore.detect.adamw.bound import rule_of
from deltastore.detect.adamw.hyper import Hyper
from deltastore.detect.batch import BatchBox
from deltastore.detect.findings import Findings
from deltastore.errors import InputError
from deltastore.kernels.inversion import RULE, Inverted, Span
from deltastore.layout.device import is_on_device
from deltastore.layout.live_parts import LiveParts
from deltastore.layout.memory import is_torch
from deltastore.layout.parts import slices_at

__all__ = ["StepBack", "device_kernel", "held_of", "is_master"]

_FLOATS: Final = np.dtype("<f4")


def held_of(live: LiveParts) -> list[Held]:
    """The parts as an attachment looks for them in the memory of an optimizer's parameters."""
    return [Held(part.name, part.tensor) for part in live.parts]


def is_master(live: LiveParts, part: int) -> bool:
    """Whether a part is FP32 and published as BF16: else inverting its step says nothing of its bits."""
    held = live.parts[part]
    return held.caster is not None and live.table.arrays[held.box.array].element.name == "BF16"


class StepBack:
    """What the last step of every optimizer was, for the parts that it can be inverted on.

    ``rules`` (n,) of dtype ``RULE``. Why a part that moved cannot be inverted is counted in ``findings``.
    """

    def __init__(self, live: LiveParts, attachments: Iterable[Attachment], findings: Findings) -> None:
        self._live = live
        self._states: dict[int, _State] = {}
        self._findings = findings
        rows: dict[Hyper, int] = {}
        for attachment in attachments:
            for part in sorted(attachment.covered):
                hyper = self._hyper(attachment, part) if is_master(live, part) else None
                if hyper is not None:
                    self._take(attachment, part, rows.setdefault(hyper, len(rows)))
        self.rules = np.array([rule_of(hyper) for hyper in rows], RULE)

    def _hyper(self, attachment: Attachment, part: int) -> Hyper | None:
        taken = attachment.taken(part)
        if not taken.moved:
            return None
        if taken.hyper is None:
            self._findings.reasons[taken.reason] += 1
        return taken.hyper

    def _take(self, attachment: Attachment, part: int, rule: int) -> None:
        try:
            moments = attachment.moments(part)
        except InputError as error:
            self._findings.reasons[str(error)] += 1
            return
        held = tuple(map(_plain, (self._live.parts[part].tensor, *moments)))
        places = {str(one.device) if is_on_device(one) else "" for one in held}
        self._states[part] = _State(held, rule, places.pop() if len(places) == 1 else "")

    def place_of(self, part: int) -> str | None:
        """The GPU on which weights and moments of the part all stand; "" for the host, or for several places.

        None where the part's old values cannot be worked out.
        """
        state = self._states.get(part)
        return None if state is None else state.place

    def span(self, of: BatchBox) -> Span:
        """The master weights and moments of one box: on the GPU of ``place_of``, else on the host."""
        state = self._states[of.part]
        index = (*slices_at(of.box.lo, of.box.size, self._live.parts[of.part].box.lo), ...)
        master, mean, square = (tensor[index] for tensor in state.held)
        if not state.place:
            master, mean, square = _on_host(master), _on_host(mean), _on_host(square)
        return Span(master, mean, square, state.rule)


@dataclass(frozen=True, slots=True, eq=False)
class _State:
    """Of one part: (master, mean, square), the row of its rule, and the GPU on which all of it stands."""

    held: tuple[Any, ...]
    rule: int
    place: str


def device_kernel() -> Callable[..., Inverted]:
    """The inversion on a GPU, loaded where it is needed; InputError where it cannot be."""
    try:
        from deltastore.detect.adamw.on_device import invert_on_device
    except ImportError as error:
        raise InputError("wrong_memory", f"the optimizer's state is on a GPU: {error}") from None
    return invert_on_device


def _plain(tensor: Any) -> Any:
    """A NumPy view of a tensor that stands in the memory of the CPU; any other as it is."""
    if not is_torch(tensor):
        return tensor
    local = tensor.detach()
    return local if is_on_device(local) or local.device.type != "cpu" else local.numpy()


def _on_host(box: Any) -> NDArray[np.float32]:
    """A box as an ndarray; of a tensor elsewhere a copy."""
    values = box if isinstance(box, np.ndarray) else box.cpu().numpy()
    return values.view(_FLOATS) if values.dtype != _FLOATS else values
