"""Whether a set of tensors is exactly that of a table: the same names, shapes and element types."""

from __future__ import annotations

from collections.abc import Iterable

from deltastore.errors import InputError
from deltastore.format.table import TensorSpec, TensorTable

__all__ = ["check_tensors"]


def check_tensors(table: TensorTable, tensors: Iterable[TensorSpec]) -> None:
    """Raise ``InputError`` unless ``tensors``, in any order, are the tensors of ``table``.

    Codes: ``unknown_tensor``, ``wrong_shape``, ``wrong_dtype``, ``missing_tensor``, and ``bad_argument`` for
    a tensor given twice. The message names the first tensor that does not fit, and what both sides say.
    """
    given: set[str] = set()
    for tensor in tensors:
        _check_tensor(table, tensor)
        if tensor.name in given:
            message = f"tensor {tensor.name!r} is given twice; give each tensor once"
            raise InputError("bad_argument", message, where=tensor.name)
        given.add(tensor.name)
    if len(given) == len(table.places):
        return
    missing = [name for name in table.places if name not in given]
    message = (
        f"tensor {missing[0]!r} of the stream is not given: "
        f"{len(given)} of {len(table.places)} tensors are there; give all of them"
    )
    raise InputError("missing_tensor", message, where=missing[0])


def _check_tensor(table: TensorTable, tensor: TensorSpec) -> None:
    place = table.places.get(tensor.name)
    if place is None:
        message = f"the stream has no tensor {tensor.name!r}; leave it out, or make a new stream with it"
        raise InputError("unknown_tensor", message, where=tensor.name)
    array = table.arrays[place[0]]
    if tensor.shape != array.shape:
        message = (
            f"tensor {tensor.name!r} has shape {list(tensor.shape)} where the stream has "
            f"{list(array.shape)}; give the shape of the stream, or make a new stream"
        )
        raise InputError("wrong_shape", message, where=tensor.name)
    if tensor.dtype != array.element:
        message = (
            f"tensor {tensor.name!r} is {tensor.dtype.name} where the stream has {array.dtype}; "
            "cast it (cast=True does, from F32), or make a new stream"
        )
        raise InputError("wrong_dtype", message, where=tensor.name)
