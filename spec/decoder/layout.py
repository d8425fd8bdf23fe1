"""SPEC 21: layouts, and what stands where in the memory that they describe."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from spec.decoder.elements import WIDTHS
from spec.decoder.json_objects import COUNT, SEAL, conforms, decode_json, sequence, text
from spec.decoder.refusal import need
from spec.decoder.table import join_name

Memory = dict[str, list[list[Any] | None]]


def is_axes(value: Any) -> bool:
    """Numbers, one for each axis."""
    return conforms(value, [COUNT]) and len(value) <= 16


def are_names(value: Any) -> bool:
    """Names by name."""
    return isinstance(value, dict) and all(isinstance(name, str) for name in value.values())


RANGES = [lambda pair: conforms(pair, [COUNT]) and len(pair) == 2]
STACK = {"pattern": str, "dtype": tuple(WIDTHS), "shape": is_axes, "members": [RANGES]}
PARAM = {"name": str, "dtype": tuple(WIDTHS), "shape": is_axes, "view": (is_axes, None)}
PIECE = sequence(COUNT, is_axes, is_axes, COUNT, is_axes, is_axes, COUNT)
LAYOUT = {**SEAL, "kind": "layout", "name": text(200), "tensors": [STACK], "params": [PARAM]}
LAYOUT |= {"pieces": [PIECE], "holes": [sequence(COUNT, is_axes, is_axes)]}
LAYOUT |= {"aliases": are_names, "ties": are_names, "unheld": [re.compile("(?s:.*)")]}


class Tensor(NamedTuple):
    """A tensor of a model."""

    name: str
    dtype: str
    shape: list[int]


def tensors_of(stacks: list[dict[str, Any]]) -> list[Tensor]:
    """The tensors of a layout by number."""
    found, total, nbytes = [], 0, 0
    for stack in stacks:
        places = stack["pattern"].split(".").count("*")
        good = stack["members"] and all(len(box) in (0, places) for box in stack["members"])
        good = good and all(low < high for box in stack["members"] for low, high in box)
        need(good, "bad_json", "DS013", "members that the pattern does not take, or an empty range of them")
        sizes = [math.prod(high - low for low, high in box) for box in stack["members"]]
        total += sum(sizes)
        nbytes += sum(sizes) * len(stack["pattern"].encode())
        few = total <= 2**21 and nbytes <= 2**28
        need(few, "bad_json", "DS013", "more tensors, or longer patterns, than any")
        for box in stack["members"]:
            for at in product(*(range(low, high) for low, high in box)):
                found.append(Tensor(join_name(stack["pattern"], at), stack["dtype"], stack["shape"]))
    return found


def inside(at: list[int], size: list[int], shape: list[int]) -> bool:
    """Whether a box lies in a shape."""
    same = len(at) == len(size) == len(shape)
    return same and all(one + step <= extent for one, step, extent in zip(at, size, shape, strict=True))


def check_piece(piece: list[Any], tensor: Tensor, param: dict[str, Any]) -> None:
    """DS111."""
    _, lo, size, _, at, axes, _ = piece
    form = form_of(param)
    need(inside(lo, size, tensor.shape), "bad_layout", "DS111", "a piece outside its tensor")
    good = len(axes) == len(size) and len(set(axes)) == len(axes) and all(axis < len(form) for axis in axes)
    need(good and len(at) == len(form), "bad_layout", "DS111", "the axes of a piece")
    extent = [1] * len(form)
    for axis, step in zip(axes, size, strict=True):
        extent[axis] = step
    need(inside(at, extent, form), "bad_layout", "DS111", "a piece outside its parameter")
    same = param["dtype"] == tensor.dtype or (param["dtype"], tensor.dtype) == ("F32", "BF16")
    need(same, "bad_layout", "DS111", "an element type that is not the tensor's")


def form_of(param: dict[str, Any]) -> list[int]:
    """The shape in which pieces see a parameter."""
    form: list[int] = param["shape"] if param["view"] is None else param["view"]
    return form


def places(piece: list[Any], form: list[int], shape: list[int]) -> Iterator[tuple[int, int]]:
    """The formula of SPEC 21: (index in memory, index in the tensor) of every element of a piece."""
    _, lo, size, _, at, axes, _ = piece
    inner = [math.prod(form[axis + 1 :]) for axis in range(len(form))]
    base = sum(one * step for one, step in zip(at, inner, strict=True))
    for index in product(*map(range, size)):
        flat = 0
        for extent, low, i in zip(shape, lo, index, strict=True):
            flat = flat * extent + low + i
        yield base + sum(i * inner[axis] for i, axis in zip(index, axes, strict=True)), flat


def decode_layout(raw: bytes) -> Memory:
    """Of every element of every parameter, row-major, the tensor and the row-major index in it, or null."""
    value = decode_json(raw, 64 * 2**20)
    need(conforms(value, LAYOUT), "bad_json", "DS013", "not of the layout's schema")
    tensors, params = tensors_of(value["tensors"]), value["params"]
    there = all(piece[0] < len(tensors) and piece[3] < len(params) for piece in value["pieces"])
    there = there and all(hole[0] < len(params) for hole in value["holes"])
    need(there, "bad_json", "DS013", "the number of a tensor or a parameter")
    names = {tensor.name for tensor in tensors}
    held = {param["name"] for param in params}
    need(len(names) == len(tensors) and len(held) == len(params), "bad_layout", "DS111", "a name twice")
    memory: Memory = {param["name"]: [None] * math.prod(form_of(param)) for param in params}
    taken = [np.zeros(form_of(param), np.int64) for param in params]
    for param in params:
        same = math.prod(form_of(param)) == math.prod(param["shape"])
        need(same, "bad_layout", "DS111", "a form of another size than its parameter")
    for piece in value["pieces"]:
        tensor, param = tensors[piece[0]], params[piece[3]]
        check_piece(piece, tensor, param)
        for at, flat in places(piece, form_of(param), tensor.shape):
            taken[piece[3]].reshape(-1)[at] += 1
            memory[param["name"]][at] = [tensor.name, flat]
    for number, at, size in value["holes"]:
        need(inside(at, size, form_of(params[number])), "bad_layout", "DS111", "a hole outside its parameter")
        taken[number][tuple(slice(one, one + step) for one, step in zip(at, size, strict=True))] += 1
    once = all((one == 1).all() for one in taken)
    need(once, "bad_layout", "DS110", "an element in no piece and no hole, or in several")
    for what, known in (("ties", held), ("aliases", names)):
        good = all(to in known and name not in known for name, to in value[what].items())
        need(good, "bad_layout", "DS111", f"{what} to nothing, or of what is there itself")
    return memory
