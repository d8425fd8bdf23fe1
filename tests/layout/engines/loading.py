"""What engines' weight loaders do to one tensor: narrow it, narrow the parameter, copy.

Written from what the loaders of vLLM 0.32 and SGLang 0.5 do, step by step, and not from the formulas of a
layout. A parameter starts as -1, so that what no loader writes is seen; padding that a loader zeroes is 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Ids = np.ndarray[Any, np.dtype[np.int64]]
UNWRITTEN = -1


def empty(*shape: int) -> Ids:
    """A new parameter."""
    return np.full(shape, UNWRITTEN, np.int64)


def narrow(tensor: Ids, axis: int, start: int, length: int) -> Ids:
    """Part of a tensor along one axis; the same memory."""
    assert start >= 0
    assert start + length <= tensor.shape[axis]
    index = [slice(None)] * tensor.ndim
    index[axis] = slice(start, start + length)
    return tensor[tuple(index)]


def copy(target: Ids, source: Ids) -> None:
    """A copy that never broadcasts, into memory that nothing was written to."""
    assert target.shape == source.shape
    assert (target == UNWRITTEN).all(), "loaded twice"
    target[...] = source


class Replicated:
    """A parameter that every process has whole."""

    def __init__(self, *shape: int) -> None:
        self.data = empty(*shape)

    def load(self, weight: Ids, shard: object = None) -> None:
        copy(self.data, weight)


class Column:
    """A linear map cut along its output."""

    def __init__(self, rank: int, size: int, rows: int, *rest: int) -> None:
        assert rows % size == 0
        self.rank = rank
        self.data = empty(rows // size, *rest)

    def load(self, weight: Ids, shard: object = None) -> None:
        length = self.data.shape[0]
        copy(self.data, narrow(weight, 0, self.rank * length, length))


class Row:
    """A linear map cut along its input."""

    def __init__(self, rank: int, size: int, rows: int, columns: int) -> None:
        assert columns % size == 0
        self.rank = rank
        self.data = empty(rows, columns // size)

    def load(self, weight: Ids, shard: object = None) -> None:
        length = self.data.shape[1]
        copy(self.data, narrow(weight, 1, self.rank * length, length))


class MergedColumn:
    """Linear maps of one input, each cut along its output, one after the other."""

    def __init__(self, rank: int, size: int, outputs: Sequence[int], *rest: int) -> None:
        assert all(rows % size == 0 for rows in outputs)
        self.rank, self.size, self.outputs = rank, size, tuple(outputs)
        self.data = empty(sum(outputs) // size, *rest)

    def load(self, weight: Ids, shard: object = None) -> None:
        assert isinstance(shard, int)
        offset = sum(self.outputs[:shard]) // self.size
        length = self.outputs[shard] // self.size
        target = narrow(self.data, 0, offset, length)
        copy(target, narrow(weight, 0, self.rank * length, length))


class Qkv:
    """Queries, keys and values; with more processes than key heads, several have the same ones."""

    def __init__(self, rank: int, size: int, heads: int, kv_heads: int, width: int, *rest: int) -> None:
        assert heads % size == 0
        self.rank, self.width = rank, width
        self.heads = heads // size
        if size >= kv_heads:
            assert size % kv_heads == 0
            self.kv_heads, self.replicas = 1, size // kv_heads
        else:
            assert kv_heads % size == 0
            self.kv_heads, self.replicas = kv_heads // size, 1
        self.data = empty((self.heads + 2 * self.kv_heads) * width, *rest)

    def load(self, weight: Ids, shard: object = None) -> None:
        offsets = {"q": 0, "k": self.heads, "v": self.heads + self.kv_heads}
        assert isinstance(shard, str)
        length = (self.heads if shard == "q" else self.kv_heads) * self.width
        turn = self.rank if shard == "q" else self.rank // self.replicas
        target = narrow(self.data, 0, offsets[shard] * self.width, length)
        copy(target, narrow(weight, 0, turn * length, length))


class Vocabulary:
    """Rows of a vocabulary that is padded before it is cut; padding is zeroed as the rows are loaded."""

    def __init__(self, rank: int, size: int, rows: int, hidden: int, multiple: int) -> None:
        padded = (rows + multiple - 1) // multiple * multiple
        assert padded % size == 0
        per_rank = padded // size
        self.start = min(rank * per_rank, rows)
        self.end = min((rank + 1) * per_rank, rows)
        self.rows = rows
        self.data = empty(per_rank, hidden)

    def load(self, weight: Ids, shard: object = None) -> None:
        assert weight.shape[0] == self.rows
        part = narrow(weight, 0, self.start, self.end - self.start)
        copy(self.data[: part.shape[0]], part)
        self.data[part.shape[0] :] = 0


class Experts:
    """All experts of a process in two parameters; ``local`` maps a global number to a slot, or to -1."""

    def __init__(
        self,
        local: Sequence[int],
        rank: int,
        size: int,
        inner: int,
        hidden: int,
        *,
        transposed: bool = False,
        up_first: bool = False,
    ) -> None:
        assert inner % size == 0
        self.local, self.rank = local, rank
        self.transposed, self.up_first = transposed, up_first
        slots = 1 + max(local)
        part = inner // size
        into, out = (2 * part, hidden), (hidden, part)
        self.w13 = empty(slots, *(into[::-1] if transposed else into))
        self.w2 = empty(slots, *(out[::-1] if transposed else out))

    def load(self, weight: Ids, expert: int, shard: str) -> None:
        slot = self.local[expert]
        if slot == -1:
            return
        axis = {"w1": 0, "w2": 1, "w3": 0}[shard]
        if self.transposed:
            weight, axis = weight.T, 1 - axis
        data = (self.w2 if shard == "w2" else self.w13)[slot]
        if shard != "w2":
            length = data.shape[axis] // 2
            behind = "w1" if self.up_first else "w3"
            data = narrow(data, axis, length if shard == behind else 0, length)
        length = data.shape[axis]
        copy(data, narrow(weight, axis, self.rank * length, length))
