"""In which order the deltas that grow from one anchor are applied, and in which buffers their weights stand.

Deltas are a tree where trainers went back. It is walked depth first, and the largest branch last, so that the
weights of a version are copied only where a smaller branch leaves it: no more than log2 of the deltas at
once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["ANCHOR", "Course", "Step", "course_of"]

ANCHOR = -1
"""The number of the step that the anchor would be."""


@dataclass(frozen=True, slots=True)
class Step:
    """The delta of ``version``, on the weights that stand in buffer ``source``.

    ``parent``: the number of the step of its base. ``target``: the buffer in which its weights stand then,
    another than ``source`` where those are needed again; None where nobody needs its weights.
    """

    version: int
    parent: int
    source: int
    target: int | None


@dataclass(frozen=True, slots=True)
class Course:
    """Steps in their order; the anchor stands in buffer 0 of ``buffers``."""

    steps: tuple[Step, ...]
    buffers: int

    def spoilt(self, bad: set[int]) -> set[int]:
        """The numbers of all steps that build on one of ``bad``, these not included unless they do so too."""
        found: set[int] = set()
        if bad:
            for number, step in enumerate(self.steps):
                if step.parent in bad or step.parent in found or (ANCHOR in bad):
                    found.add(number)
        return found


def course_of(anchor: int, bases: Mapping[int, int], *, keep: bool = False) -> Course:
    """The course over deltas, ``bases``: version -> the version it builds on, which is below it.

    ``keep``: the weights of versions that nothing builds on are wanted too.
    """
    children = _children(bases)
    steps: list[Step] = []
    free: list[int] = []
    buffers = 1
    # What is left to do, the next thing last: (version, step of its base, buffer, whether that may be taken),
    # or a buffer that is free from then on.
    left: list[tuple[int, int, int, bool] | int] = []

    def branch(version: int, number: int, buffer: int) -> None:
        grown = enumerate(children.get(version, ()))
        left.extend((child, number, buffer, not at) for at, child in grown)

    branch(anchor, ANCHOR, 0)
    while left:
        task = left.pop()
        if isinstance(task, int):
            free.append(task)
            continue
        version, parent, source, taken = task
        target: int | None = source
        if version not in children and not keep:
            target = None
        elif not taken:
            if not free:
                free.append(buffers)
                buffers += 1
            target = free.pop()
            left.append(target)
        steps.append(Step(version, parent, source, target))
        if target is not None:
            branch(version, len(steps) - 1, target)
    return Course(tuple(steps), buffers)


def _children(bases: Mapping[int, int]) -> dict[int, list[int]]:
    """What builds on each version, the largest branch first."""
    children: dict[int, list[int]] = {}
    size = dict.fromkeys(bases, 1)
    for version in sorted(bases, reverse=True):
        children.setdefault(bases[version], []).append(version)
        if bases[version] in size:
            size[bases[version]] += size[version]
    for grown in children.values():
        grown.sort(key=lambda child: (-size[child], child))
    return children
