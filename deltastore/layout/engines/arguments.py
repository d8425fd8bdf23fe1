"""What callers may say of an engine's processes."""

from __future__ import annotations

import math
from collections.abc import Iterable

from deltastore.errors import InputError
from deltastore.format.dtypes import DTYPES, Dtype
from deltastore.layout.integers import check_integer
from deltastore.layout.model import MixtureOfExperts, Model

__all__ = ["check_degrees", "check_rank", "element_of", "experts_of"]


def check_degrees(**degrees: int) -> None:
    """Whether all degrees are integers of at least 1; ``InputError("bad_argument")``."""
    for name, degree in degrees.items():
        check_integer(name, degree, least=1)


def check_rank(rank: int, **degrees: int) -> None:
    """Whether ``rank`` is one of the processes that degrees make together; ``InputError("bad_argument")``."""
    world = math.prod(degrees.values())
    if type(rank) is not int or not 0 <= rank < world:
        said = " x ".join(f"{name} {degree}" for name, degree in degrees.items())
        raise InputError(
            "bad_argument",
            f"rank {rank!r:.40} is none of the {world} ranks that {said} make; give one from 0 to "
            f"{world - 1}",
        )


def element_of(name: str, said: str | None) -> Dtype | None:
    """The type that parameters have in place of their tensors' own."""
    if said is None or said == "F32":
        return None if said is None else DTYPES["F32"]
    raise InputError("bad_argument", f"{name}={said!r:.80} is not known; it is 'F32', or not given")


def experts_of(model: Model) -> int:
    """Experts of a layer that has some; 0 if none has."""
    mixtures: Iterable[MixtureOfExperts] = (
        layer.mlp for layer in model.layers if isinstance(layer.mlp, MixtureOfExperts)
    )
    return next((len(mixture.experts) for mixture in mixtures), 0)
