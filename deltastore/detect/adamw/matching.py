"""Which of an optimizer's parameters a held box lies in: by memory, for names and objects say nothing of it.

A parameter may be a whole tensor, a shard, or a flat buffer that ignores where tensors begin; several held
boxes may lie in one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from deltastore.detect.adamw.masters import why_refused
from deltastore.detect.adamw.memory import Memory, is_plain, local_of, memory_of
from deltastore.errors import InputError

__all__ = ["Matches", "Spot", "match", "parameters_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Spot:
    """Where a held box lies in parameter ``number`` of group ``group``.

    ``offset``: of its first element in the parameter, in elements; None where it is the whole parameter.
    ``apart``: of their addresses, in bytes.
    """

    param: Any
    group: int
    number: int
    whole: Memory
    box: Memory
    offset: int | None

    def stands(self, view: Any) -> bool:
        """Whether both are where they were, or have moved together."""
        param = local_of(self.param)
        if not is_plain(param) or tuple(param.shape) != self.whole.shape:
            return False
        if isinstance(param, np.ndarray) or isinstance(view, np.ndarray):
            now, box = memory_of(param), memory_of(view)
            return now is not None and box is not None and now.is_same(self.whole) and box.is_same(self.box)
        address, held = param.data_ptr(), view.data_ptr()
        return (
            bool(address and held)
            and held - address == self.box.address - self.whole.address
            and tuple(param.stride()) == self.whole.strides
        )

    def inside(self, moment: Any) -> Any:
        """The box of a moment that has the parameter's shape: a view where the moment's memory allows one."""
        if self.offset is None:
            return moment
        flat = moment.reshape(-1)
        shape, strides = self.box.shape, self.box.strides
        if isinstance(flat, np.ndarray):
            steps = tuple(stride * flat.itemsize for stride in strides)
            return np.lib.stride_tricks.as_strided(flat[self.offset :], shape, steps)
        return flat.as_strided(shape, strides, flat.storage_offset() + self.offset)

    def __str__(self) -> str:
        return f"parameter {self.number} of group {self.group}"


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """Numbers of held boxes: where those lie that can be inverted, and why others cannot be."""

    spots: Mapping[int, Spot]
    refused: Mapping[int, str]


@dataclass(frozen=True, slots=True, eq=False)
class _Owner:
    """A parameter in memory."""

    param: Any
    group: int
    number: int
    memory: Memory


def parameters_of(optimizer: Any) -> Iterator[tuple[int, int, Any]]:
    """Group, number and object of every parameter, each object once in a group."""
    for at, group in enumerate(optimizer.param_groups):
        seen: set[int] = set()
        for number, param in enumerate(group["params"]):
            if id(param) not in seen:
                seen.add(id(param))
                yield at, number, param


def match(optimizer: Any, names: Sequence[str], views: Sequence[Any]) -> Matches:
    """Where each of ``views`` lies; ``InputError("bad_argument")`` for one that lies in two parameters."""
    owners = _Owners(optimizer)
    spots: dict[int, Spot] = {}
    refused: dict[int, str] = {}
    for number, (name, view) in enumerate(zip(names, views, strict=True)):
        box = memory_of(view)
        near = owners.near(box) if box is not None else []
        if box is None or not near:
            continue
        owner = _only_owner(name, box, near)
        reason = why_refused(optimizer, owner.group, owner.param) if owner else _why_astray(near)
        if owner is not None and not reason:
            reason = f"it is {box.element}" if box.element != "float32" else ""
        if owner is None or reason:
            refused[number] = reason
        else:
            whole, offset = owner.memory, _offset(box, owner.memory)
            spots[number] = Spot(owner.param, owner.group, owner.number, whole, box, offset)
    return Matches(spots, refused)


class _Owners:
    """Parameters by where they begin."""

    def __init__(self, optimizer: Any) -> None:
        owners: dict[str, list[_Owner]] = {}
        for group, number, param in parameters_of(optimizer):
            memory = memory_of(local_of(param))
            if memory is not None:
                owners.setdefault(memory.device, []).append(_Owner(param, group, number, memory))
        self._of = {device: _Device(found) for device, found in owners.items()}

    def near(self, box: Memory) -> list[_Owner]:
        """Those whose span of addresses meets the box's."""
        device = self._of.get(box.device)
        return device.near(box.first, box.end) if device else []


class _Device:
    def __init__(self, owners: list[_Owner]) -> None:
        self._owners = sorted(owners, key=lambda owner: owner.memory.first)
        self._first = [owner.memory.first for owner in self._owners]
        self._end = [owner.memory.end for owner in self._owners]
        self._reach = list(accumulate(self._end, max))

    def near(self, first: int, end: int) -> list[_Owner]:
        found = []
        at = bisect_left(self._first, end) - 1
        while at >= 0 and self._reach[at] > first:
            if self._end[at] > first:
                found.append(self._owners[at])
            at -= 1
        return found[::-1]


def _only_owner(name: str, box: Memory, near: list[_Owner]) -> _Owner | None:
    """The parameter that has the box, if one has all of it."""
    owners = [owner for owner in near if _holds(owner.memory, box)]
    sure = [owner for owner in near if owner in owners or (owner.memory.contiguous and box.contiguous)]
    if owners and len(sure) > 1:
        places = " and ".join(f"parameter {each.number} of group {each.group}" for each in sure[:2])
        raise InputError(
            "bad_argument",
            f"tensor {name!r} lies in {places} of one optimizer, which both move it: give each element "
            "to one parameter",
            where=name,
        )
    return owners[0] if owners else None


def _holds(whole: Memory, box: Memory) -> bool:
    """Whether every element of the box is one of the parameter, at a known place."""
    if whole.is_same(box):
        return True
    if not whole.contiguous or whole.width != box.width or min(box.strides, default=0) < 0:
        return False
    aligned = (box.first - whole.first) % whole.width == 0
    return aligned and whole.first <= box.first and box.end <= whole.end


def _offset(box: Memory, whole: Memory) -> int | None:
    return None if box.is_same(whole) else (box.address - whole.address) // whole.width


def _why_astray(near: list[_Owner]) -> str:
    if len(near) > 1:
        return "it lies across several parameters"
    return "it lies in a parameter's memory, but not as a part of it that can be found in the moments"
