"""Where parameters lie in a flat buffer of several buckets, and which run of each a rank owns."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Laid", "Layout", "Owned", "lay_out"]

PARAM_ALIGNMENT = 64
BUCKET_ALIGNMENT = 128


@dataclass(frozen=True)
class Laid:
    """Parameter ``number`` takes elements ``[start, end)`` of the buffer, in bucket ``bucket``."""

    number: int
    start: int
    end: int
    bucket: int


@dataclass(frozen=True)
class Owned:
    """The elements ``[first, end)`` of a parameter, which stand in the buffer from ``at`` on."""

    number: int
    first: int
    end: int
    at: int


@dataclass(frozen=True)
class Layout:
    """``params`` in the order of the buffer, and where the buckets begin and end, padding included."""

    params: tuple[Laid, ...]
    buckets: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        """Elements of the buffer."""
        return self.buckets[-1][1] if self.buckets else 0

    def shards(self, ranks: int, rank: int) -> Iterator[tuple[int, int]]:
        """What a rank owns of each bucket: the same share of all, whatever lies there."""
        for start, end in self.buckets:
            each = (end - start) // ranks
            yield start + rank * each, start + (rank + 1) * each

    def owned(self, ranks: int, rank: int) -> Iterator[Owned]:
        """What a rank owns of the parameters."""
        for low, high in self.shards(ranks, rank):
            for laid in self.params:
                first, end = max(low, laid.start), min(high, laid.end)
                if first < end:
                    yield Owned(laid.number, first - laid.start, end - laid.start, first)


def lay_out(
    sizes: Sequence[int], ranks: int, *, bucket_size: int | None = None, alone: Collection[int] = ()
) -> Layout:
    """Parameters of ``sizes`` elements, the last one first, for ``ranks`` data-parallel ranks.

    A bucket ends once it has ``bucket_size`` elements; None: there is one. The parameters ``alone`` have
    buckets of their own, as the embedding that two pipeline stages share.
    """
    divisor = math.lcm(ranks, BUCKET_ALIGNMENT)
    params: list[Laid] = []
    buckets: list[tuple[int, int]] = []
    begin = at = 0
    filled = False
    for number in reversed(range(len(sizes))):
        at = _up(at, PARAM_ALIGNMENT)
        if number in alone and filled:
            buckets.append((begin, _up(at, divisor)))
            begin = at = buckets[-1][1]
        end = at + sizes[number]
        params.append(Laid(number, at, end, len(buckets)))
        at, filled = end, True
        if number in alone or (bucket_size is not None and end - begin >= bucket_size):
            buckets.append((begin, _up(end, divisor)))
            begin = at = buckets[-1][1]
            filled = False
    if filled:
        buckets.append((begin, _up(at, divisor)))
    return Layout(tuple(params), tuple(buckets))


def _up(number: int, divisor: int) -> int:
    return -(-number // divisor) * divisor
