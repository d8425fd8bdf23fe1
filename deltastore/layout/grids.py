"""Which grid a new stream gets: the aligned one where the model is known, else the plain one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from deltastore.errors import InputError
from deltastore.format.table import TensorSpec, TensorTable
from deltastore.layout.cuts import Experts
from deltastore.layout.cutting import plain_table
from deltastore.layout.families import model_of
from deltastore.layout.families.config import AnyConfig
from deltastore.layout.model import MixtureOfExperts
from deltastore.layout.slabs import slab_table

__all__ = ["DEFAULT_SLABS", "Grid", "chosen_grid"]

DEFAULT_SLABS: Final = 8
"""Most models run on 1, 2, 4 or 8 devices of one machine."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The table; and for which readers its experts are cut, None where there are none, or no slabs."""

    table: TensorTable
    moe: Experts | None = None


def chosen_grid(
    tensors: Iterable[TensorSpec], config: AnyConfig | None, *, slabs: int | None, moe: Experts | None
) -> Grid:
    """The grid for ``tensors`` of the model that ``config`` describes.

    ``slabs``: None for ``DEFAULT_SLABS``; 0 for the plain grid, which is also what there is without
    ``config``. ``moe``: see ``slab_table``; None for "ep"; "tp" only where there are experts. Raises
    ``InputError``: ``unknown_model``, ``bad_argument``, and what ``slab_table`` raises.
    """
    if slabs == 0 or config is None:
        if slabs:
            problem = "there is no configuration (config.json) from which slabs could follow"
            raise InputError("bad_argument", f"{problem}: give it, or 0 slabs for the plain grid")
        if moe is not None:
            raise InputError("bad_argument", "how experts are cut is a matter of slabs, and there are none")
        return Grid(plain_table(tensors))
    model = model_of(config)
    experts = any(isinstance(layer.mlp, MixtureOfExperts) for layer in model.layers)
    if moe == "tp" and not experts:
        raise InputError(
            "bad_argument", f"a {model.architecture} model has no experts that could be cut: leave moe out"
        )
    table = slab_table(model, tensors, slabs=DEFAULT_SLABS if slabs is None else slabs, moe=moe or "ep")
    return Grid(table, (moe or "ep") if experts else None)
