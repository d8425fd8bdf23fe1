"""Columns of the tables that the host builds and kernels read, and how work is cut.

A pack's rows, runs and windows go to the device as plain integer matrices; a kernel finds a field at
``matrix + entry * WIDTH + COLUMN``. All are written by this process from checked input.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
import triton.language as tl

from deltastore.kernels.rows import Octets

__all__ = ["ELEMENT_TYPES", "words_of"]

LANES = tl.constexpr(1024)
"""Bits of a high section, or elements of a raw patch, that one program decodes."""

ROW_WIDTH = tl.constexpr(10)
ROW_FLOATING = tl.constexpr(0)
ROW_FIRST_WINDOW = tl.constexpr(1)
ROW_END_WINDOW = tl.constexpr(2)
ROW_ELEMENTS = tl.constexpr(3)
ROW_FIRST_OLD = tl.constexpr(4)
ROW_END_OLD = tl.constexpr(5)
ROW_FIRST_TASK = tl.constexpr(6)
ROW_FIRST_RUN = tl.constexpr(7)
ROW_END_RUN = tl.constexpr(8)
ROW_RAW_WORD = tl.constexpr(9)

RUN_WIDTH = tl.constexpr(8)
RUN_ROW = tl.constexpr(0)
RUN_BITS = tl.constexpr(1)
RUN_LOW_BITS = tl.constexpr(2)
RUN_COUNT = tl.constexpr(3)
RUN_LOW_WORD = tl.constexpr(4)
RUN_HIGH_WORD = tl.constexpr(5)
RUN_RESIDUE_WORD = tl.constexpr(6)
RUN_FIRST_TASK = tl.constexpr(7)
RUN_FLOOR = tl.constexpr(7)
"""An encoder's runs have no tasks of their own, but the width of the run before them."""

WINDOW_WIDTH = tl.constexpr(8)
WINDOW_ADDRESS = tl.constexpr(0)
WINDOW_FLAT = tl.constexpr(1)
WINDOW_SEED = tl.constexpr(2)
WINDOW_FIRST_AXIS = tl.constexpr(3)
WINDOW_AXES = tl.constexpr(4)
WINDOW_LOW = tl.constexpr(5)
WINDOW_HIGH = tl.constexpr(6)
WINDOW_ELEMENTS = tl.constexpr(7)

AXIS_WIDTH = tl.constexpr(5)
AXIS_EXTENT = tl.constexpr(0)
AXIS_LOW = tl.constexpr(1)
AXIS_SIZE = tl.constexpr(2)
AXIS_STRIDE = tl.constexpr(3)
AXIS_FLAT = tl.constexpr(4)

ELEMENT_TYPES: Final = {
    1: (tl.uint8, tl.uint32, torch.int8),
    2: (tl.uint16, tl.uint32, torch.int16),
    4: (tl.uint32, tl.uint32, torch.int32),
    8: (tl.uint64, tl.uint64, torch.int64),
}
"""By bytes an element: its type in memory, the one to calculate in, and that of a scratch tensor."""


def words_of(octets: Octets) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """Bytes as little-endian 32-bit words; ``octets`` is a multiple of four long."""
    return octets.view("<u4")
