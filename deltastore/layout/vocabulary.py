"""Embedding and head: rows cut after padding the vocabulary."""

from __future__ import annotations

from typing import Final

from deltastore.format.dtypes import Dtype
from deltastore.format.table import TensorSpec
from deltastore.layout.drawing import Drawing
from deltastore.layout.share import Share

__all__ = ["VOCABULARY_MULTIPLE", "draw_vocabulary", "padded_to"]

VOCABULARY_MULTIPLE: Final = 64
"""Engines pad vocabularies to a multiple of this."""


def padded_to(rows: int, multiple: int) -> int:
    """``rows``, or the next multiple above."""
    return -(-rows // multiple) * multiple


def draw_vocabulary(
    drawing: Drawing,
    tensor: TensorSpec,
    param: str,
    share: Share,
    padded: int,
    *,
    dtype: Dtype | None = None,
) -> None:
    """This share of ``padded`` rows: those of ``tensor`` that are among them, and a hole."""
    rows, hidden = tensor.shape
    first, count = share.cut(padded, "rows of the padded vocabulary", param)
    held = max(min(first + count, rows) - first, 0)
    drawing.param(param, (count, hidden), dtype or tensor.dtype)
    drawing.rows(tensor, min(first, rows), held, param, 0, replica=share.copy)
    drawing.hole(param, (held, 0), (count - held, hidden))
