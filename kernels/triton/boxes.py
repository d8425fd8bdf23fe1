"""Where the elements of blocks stand on the device: the boxes of ``Blocks`` as tables, and the way into them.

Neighbouring axes that the tensor and all memory run through in one stride are one axis, so a box of whole
rows has one, or none where it has one element. A task is one block; both are found without a search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from deltastore.kernels.blocks import Blocks, BoxOf
from deltastore.kernels.triton.weights import block_weight

__all__ = ["BoxTables", "box_tables", "lanes_of", "run_weights", "words_of"]

BLOCK = tl.constexpr(2048)

TASK_WIDTH = tl.constexpr(3)
TASK_BOX = tl.constexpr(0)
TASK_PART = tl.constexpr(1)
TASK_BLOCK = tl.constexpr(2)

BOX_WIDTH = tl.constexpr(10)
BOX_AT = tl.constexpr(0)
BOX_ELEMENTS = tl.constexpr(1)
BOX_FLAT = tl.constexpr(2)
BOX_SEED = tl.constexpr(3)
BOX_FIRST_AXIS = tl.constexpr(4)
BOX_AXES = tl.constexpr(5)
BOX_RULE = tl.constexpr(6)
BOX_MEMORY = tl.constexpr(7)
"""Three columns: addresses of the master weights and of their moments."""

SIDE_WIDTH = tl.constexpr(5)
SIDE_SIZE = tl.constexpr(0)
SIDE_FLAT = tl.constexpr(1)
SIDE_MEMORY = tl.constexpr(2)
"""Three columns: strides in bytes."""


@dataclass(frozen=True, slots=True)
class BoxTables:
    """``tasks`` int32 (B, 3), ``boxes`` int64 (n, 10) and ``sides`` int64 (a, 5): columns above.

    The sides of one box are its axes, innermost first. ``joined`` (n,): boxes that all memory and the tensor
    hold in one piece.
    """

    tasks: NDArray[np.int32]
    boxes: NDArray[np.int64]
    sides: NDArray[np.int64]
    joined: NDArray[np.bool_]


def box_tables(blocks: Blocks, memory: Sequence[tuple[torch.Tensor, ...]], rules: Sequence[int]) -> BoxTables:
    """The tables of ``blocks``; ``memory``: for each box its tensors, three or none, of the box's shape.

    O(blocks), and a loop over boxes.
    """
    counts = np.diff(blocks.first_block)
    tasks = np.empty((len(blocks), 3), np.int32)
    tasks[:, 0] = np.repeat(np.arange(len(counts)), counts)
    tasks[:, 1] = np.arange(len(blocks)) - blocks.first_block[:-1][tasks[:, 0]]
    tasks[:, 2] = np.arange(len(blocks))
    boxes = np.zeros((len(counts), 10), np.int64)
    sides: list[list[int]] = []
    joined = np.zeros(len(counts), np.bool_)
    for number, (box, tensors, rule) in enumerate(zip(blocks.boxes, memory, rules, strict=True)):
        steps = [math.prod(box.shape[axis + 1 :]) for axis in range(len(box.shape))]
        mine = _sides(box, steps, tensors)
        flat = sum(low * step for low, step in zip(box.lo, steps, strict=True))
        seed = np.uint64(box.seed).view(np.int64)
        boxes[number, :7] = (0, box.elements, flat, seed, len(sides), len(mine), rule)
        boxes[number, 7 : 7 + len(tensors)] = [tensor.data_ptr() for tensor in tensors]
        joined[number] = not mine or mine[0][1:] == [box.elements, 1, *(4 for _ in tensors)][1:]
        joined[number] &= len(mine) <= 1
        sides += [[*side, 0, 0, 0][:5] for side in mine]
    boxes[:, 0] = blocks.first[:-1]
    return BoxTables(tasks, boxes, np.array(sides, np.int64).reshape(-1, 5), joined)


def _sides(box: BoxOf, steps: list[int], tensors: tuple[torch.Tensor, ...]) -> list[list[int]]:
    """[size, stride in the tensor, strides in memory ...] of what is left when axes join."""
    strides = [tensor.stride() for tensor in tensors]
    sides: list[list[int]] = []
    for axis in range(len(box.size) - 1, -1, -1):
        size = box.size[axis]
        own = [steps[axis], *(each[axis] * 4 for each in strides)]
        if size == 1:
            continue
        if sides and own == [sides[-1][0] * step for step in sides[-1][1:]]:
            sides[-1][0] *= size
        else:
            sides.append([size, *own])
    return sides


@triton.jit
def lanes_of(box: tl.tensor, sides: tl.tensor, start: tl.tensor) -> Any:
    """(flat, first, second, third) of 2048 elements of a box from element ``start`` (int64) on, row-major:
    their indexes in the tensor, and bytes from the box's three addresses.

    What stands beyond the box is nowhere in particular. No division of 64 bits but of scalars: of 2048
    elements, the next axis is reached 2048 times at most, and once where this one is longer.
    """
    carry = tl.arange(0, BLOCK)
    flat = carry.to(tl.int64) * 0
    first = flat
    second = flat
    third = flat
    side = sides + tl.load(box + BOX_FIRST_AXIS) * SIDE_WIDTH
    left = tl.load(box + BOX_AXES).to(tl.int32)
    while left > 0:
        size = tl.load(side + SIDE_SIZE)
        index = start % size + carry
        start = start // size
        if size < 2 * BLOCK:
            short = index.to(tl.int32)
            carry = short // size.to(tl.int32)
            index = (short - carry * size.to(tl.int32)).to(tl.int64)
        else:
            carry = (index >= size).to(tl.int32)
            index -= carry * size
        flat += index * tl.load(side + SIDE_FLAT)
        first += index * tl.load(side + SIDE_MEMORY)
        second += index * tl.load(side + SIDE_MEMORY + 1)
        third += index * tl.load(side + SIDE_MEMORY + 2)
        side += SIDE_WIDTH
        left -= 1
    return flat + tl.load(box + BOX_FLAT), first, second, third


@triton.jit
def words_of(box: tl.tensor, sides: tl.tensor, start: tl.tensor, inside: tl.tensor) -> Any:
    """(flat, masters, means, squares) of 2048 elements of a box from ``start`` on: int32 where ``inside``."""
    flat, first, second, third = lanes_of(box, sides, start)
    word = tl.pointer_type(tl.int32)
    memory = box + BOX_MEMORY
    masters = tl.load((tl.load(memory) + first).to(word), mask=inside, other=0)
    means = tl.load((tl.load(memory + 1) + second).to(word), mask=inside, other=0)
    squares = tl.load((tl.load(memory + 2) + third).to(word), mask=inside, other=0)
    return flat, masters, means, squares


@triton.jit
def run_weights(flat: tl.tensor, weights: tl.tensor) -> Any:
    """The weights of the 2048 flat indexes from ``flat`` (int64) on, without the tensor's seed."""
    lane = tl.arange(0, BLOCK)
    ahead = (flat & (BLOCK - 1)).to(tl.int32)
    within = tl.load(weights + ((ahead + lane) & (BLOCK - 1))).to(tl.uint64, bitcast=True)
    shared = tl.where(lane < BLOCK - ahead, block_weight(flat >> 11), block_weight((flat >> 11) + 1))
    return within * shared
