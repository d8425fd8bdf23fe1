"""A whole model in the parameters of one process, read as the tensors that they hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from deltastore.errors import InputError
from deltastore.format.table import TensorSpec, TensorTable
from deltastore.layout.coverage import OwnedBox, check_coverage, merged_members
from deltastore.layout.laid_parts import Params, parts_of
from deltastore.layout.live_parts import LiveParts
from deltastore.layout.pieces import Layout

__all__ = ["LaidWeights", "laid_specs"]

Bits = np.ndarray[Any, Any]


def laid_specs(layout: Layout, *, cast: str | None = None) -> tuple[TensorSpec, ...]:
    """What a new stream of such parameters holds: the layout's tensors.

    ``cast`` asks for no more than the layout says: ``InputError("bad_argument")`` where it has no tensor of
    that type, so that nothing would be cast.
    """
    if cast is not None and all(tensor.dtype.name != cast for tensor in layout.tensors):
        kinds = ", ".join(sorted({tensor.dtype.name for tensor in layout.tensors}))
        raise InputError(
            "bad_argument",
            f"layout {layout.name} has tensors of {kinds}, none of {cast!r:.40}: draw it from a "
            'configuration with that type ("dtype": "bfloat16")',
        )
    return layout.tensors


class LaidWeights:
    """The parameters of one process that holds all of a model, as ``Weights``.

    Raises ``InputError`` as ``parts_of`` does, and ``bad_argument`` for elements that are not held.
    """

    def __init__(self, table: TensorTable, layout: Layout, params: Params, *, cast: bool = False) -> None:
        self._live = LiveParts(table, parts_of(layout, params, cast=cast), cast=cast)
        boxes = [OwnedBox(box.array, (box.member, *box.lo), (1, *box.size)) for box in self._live.boxes]
        check_coverage(table, [(layout.name, merged_members(boxes))])

    @property
    def table(self) -> TensorTable:
        """The tensors and how they are cut."""
        return self._live.table

    async def read(self, array: int, chunk: int) -> Bits:
        """One chunk in memory of its own."""
        parts = self._live.parts
        return self._live.assemble(array, chunk, lambda number, box: parts[number].within(box))
