"""Weights to measure with: the arrays of a Qwen3 layer, and what an optimizer step does to them.

A change is made as training makes it: FP32 weights move by an AdamW-like update, and a BF16 element changes
where its rounding does. Updates are larger in some rows and columns than in others, by log-normal factors, so
changes stand in clusters; and the smaller a weight, the more representable values it moves by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from deltastore.format.dtypes import DTYPES
from deltastore.format.table import TensorSpec, TensorTable
from deltastore.kernels.pieces import Piece, Pieces
from deltastore.layout.cutting import plain_table

__all__ = ["SHAPES", "Model", "Step", "make_model"]

SHAPES: Final[dict[str, dict[str, tuple[int, ...]]]] = {
    "qwen3-8b": {
        "self_attn.q_proj": (4096, 4096),
        "self_attn.k_proj": (1024, 4096),
        "self_attn.v_proj": (1024, 4096),
        "self_attn.o_proj": (4096, 4096),
        "mlp.gate_proj": (12288, 4096),
        "mlp.up_proj": (12288, 4096),
        "mlp.down_proj": (4096, 12288),
        "input_layernorm": (4096,),
    },
    "qwen3-0.6b": {
        "self_attn.q_proj": (2048, 1024),
        "self_attn.k_proj": (1024, 1024),
        "self_attn.v_proj": (1024, 1024),
        "self_attn.o_proj": (1024, 2048),
        "mlp.gate_proj": (3072, 1024),
        "mlp.up_proj": (3072, 1024),
        "mlp.down_proj": (1024, 3072),
        "input_layernorm": (1024,),
    },
}
"""The tensors of one layer, by model."""

_SCALE: Final = 0.02
_SPREAD: Final = 0.5
"""Standard deviation of the logarithm of the factors of rows and columns."""

_ROWS: Final = 256  # at a time: temporaries stay small

Bits = np.ndarray[Any, Any]
Floats = np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True, slots=True)
class Model:
    """BF16 bits, uint16, by tensor name, and their table."""

    table: TensorTable
    tensors: dict[str, Bits]

    @property
    def pieces(self) -> Pieces:
        """Every tensor in its memory."""
        places = self.table.places
        return Pieces(
            self.table.kernels,
            (Piece(*places[name], (0,) * bits.ndim, bits) for name, bits in self.tensors.items()),
        )

    def copy(self) -> Model:
        """The same bits in other memory."""
        return Model(self.table, {name: bits.copy() for name, bits in self.tensors.items()})


@dataclass(frozen=True, slots=True)
class Step:
    """The weights after a step in which ``density`` of the elements changed, and the exact number of them."""

    model: Model
    density: float
    changed: int


class _Layers:
    """FP32 weights and the updates of one step, made anew whenever asked for, always the same."""

    def __init__(self, shapes: dict[str, tuple[int, ...]], seed: int) -> None:
        self.shapes = shapes
        self._seed = seed

    def parts(self, name: str) -> Any:
        """(rows, weights, updates at learning rate 1) of one tensor, ``_ROWS`` rows at a time."""
        shape = self.shapes[name]
        random = np.random.default_rng([self._seed, *name.encode()])
        columns = np.exp(random.normal(0, _SPREAD, shape[-1])).astype(np.float32)
        rows = shape[0] if len(shape) > 1 else 1
        for start in range(0, rows, _ROWS):
            count = min(_ROWS, rows - start)
            height = np.exp(random.normal(0, _SPREAD, (count, 1))).astype(np.float32)
            weights = random.standard_normal((count, shape[-1]), np.float32) * np.float32(_SCALE)
            updates = random.standard_normal((count, shape[-1]), np.float32) * height * columns
            yield slice(start, start + count), weights, updates


def make_model(shapes: str, layers: int, seed: int = 0) -> tuple[Model, Any]:
    """``layers`` layers of ``SHAPES[shapes]``, and a function from a density to the step that has it."""
    sizes = {
        f"model.layers.{layer}.{part}.weight": shape
        for layer in range(layers)
        for part, shape in SHAPES[shapes].items()
    }
    source = _Layers(sizes, seed)
    table = plain_table(TensorSpec(name, shape, DTYPES["BF16"]) for name, shape in sizes.items())
    model = Model(table, {name: _bits(source, name, np.float32(0)) for name in sizes})

    def step(density: float) -> Step:
        rate = _rate(source, next(iter(sizes)), density)
        after = Model(table, {name: _bits(source, name, rate) for name in sizes})
        pairs = zip(after.tensors.values(), model.tensors.values(), strict=True)
        changed = sum(int(np.count_nonzero(new != old)) for new, old in pairs)
        return Step(after, changed / table.elements, changed)

    return model, step


def _bits(source: _Layers, name: str, rate: np.float32) -> Bits:
    shape = source.shapes[name]
    bits = np.empty((shape[0] if len(shape) > 1 else 1, shape[-1]), np.uint16)
    for rows, weights, updates in source.parts(name):
        bits[rows] = _rounded(weights + rate * updates)
    return bits.reshape(shape)


def _rounded(values: Floats) -> Bits:
    """BF16 bits, to nearest even; there are no NaNs here."""
    wide = values.view(np.uint32)
    half = np.uint32(0x7FFF) + ((wide >> np.uint32(16)) & np.uint32(1))
    return ((wide + half) >> np.uint32(16)).astype(np.uint16)


def _rate(source: _Layers, name: str, density: float) -> np.float32:
    """The learning rate at which ``density`` of the first rows of a tensor change."""
    _, weights, updates = next(source.parts(name))
    before = _rounded(weights)
    low, high = 1e-9, 1.0
    for _ in range(40):
        rate = np.float32((low * high) ** 0.5)
        share = np.count_nonzero(_rounded(weights + rate * updates) != before) / before.size
        low, high = (float(rate), high) if share < density else (low, float(rate))
    return np.float32(high)
