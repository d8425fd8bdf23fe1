"""Drawing a layout: parameters, what stands in them, and what is padding; checked as a whole at the end."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence

from deltastore.errors import InputError
from deltastore.format.dtypes import Dtype, dtype_named
from deltastore.format.table import TensorSpec
from deltastore.layout.checking import check_layout
from deltastore.layout.pieces import Hole, Layout, Param, Piece

__all__ = ["Drawing"]


class Drawing:
    """A layout in the making. Every call returns at once; ``done`` checks that nothing is left out or double.

    ``tensors``: the whole model's, of which pieces may be placed.
    """

    def __init__(
        self,
        name: str,
        tensors: Iterable[TensorSpec],
        *,
        aliases: Mapping[str, str] | None = None,
        unheld: tuple[str, ...] = (),
    ) -> None:
        self._name = name
        self._tensors = tuple(tensors)
        self._aliases = dict(aliases or {})
        self._unheld = unheld
        self._params: dict[str, Param] = {}
        self._pieces: list[Piece] = []
        self._holes: list[Hole] = []
        self._ties: dict[str, str] = {}

    def param(
        self, name: str, shape: Sequence[int], dtype: Dtype | str, *, view: Sequence[int] | None = None
    ) -> str:
        """A parameter; returns its name. ``dtype``: "BF16", say; ``view``: the shape that pieces see."""
        if name in self._params:
            raise InputError("bad_layout", f"parameter {name!r} is drawn twice", where=name)
        element = dtype_named(dtype) if isinstance(dtype, str) else dtype
        self._params[name] = Param(name, tuple(shape), element, None if view is None else tuple(view))
        return name

    def tie(self, name: str, to: str) -> None:
        """Parameter ``name`` is the memory of parameter ``to``."""
        self._ties[name] = to

    def place(
        self,
        tensor: TensorSpec,
        param: str,
        *,
        lo: Sequence[int] | None = None,
        size: Sequence[int] | None = None,
        at: Sequence[int] | None = None,
        axes: Sequence[int] | None = None,
        replica: int = 0,
    ) -> None:
        """A box of a tensor in a parameter: by default all of it, from the start, along the last axes.

        Raises ``InputError("bad_layout")`` for a parameter that is not drawn yet.
        """
        if param not in self._params:
            raise InputError(
                "bad_layout",
                f"parameter {param!r} is to hold tensor {tensor.name!r} and is not drawn: call param() first",
                where=param,
            )
        rank = len(tensor.shape)
        form = self._params[param].form
        low = (0,) * rank if lo is None else tuple(lo)
        along = range(len(form) - rank, len(form)) if axes is None else axes
        piece = Piece(
            tensor.name,
            low,
            tuple(map(operator.sub, tensor.shape, low)) if size is None else tuple(size),
            param,
            (0,) * len(form) if at is None else tuple(at),
            tuple(along),
            replica,
        )
        if piece.elements:
            self._pieces.append(piece)

    def whole(
        self,
        tensor: TensorSpec,
        name: str | None = None,
        *,
        dtype: Dtype | str | None = None,
        replica: int = 0,
    ) -> None:
        """A tensor that is a parameter as it is; ``dtype`` if the parameter has another."""
        param = self.param(name or tensor.name, tensor.shape, dtype or tensor.dtype)
        self.place(tensor, param, replica=replica)

    def rows(
        self, tensor: TensorSpec, first: int, count: int, param: str, row: int, *, replica: int = 0
    ) -> None:
        """Rows ``[first, first + count)`` of a tensor, at row ``row`` of a parameter of the same rank."""
        rest = tensor.shape[1:]
        zeros = (0,) * len(rest)
        self.place(tensor, param, lo=(first, *zeros), size=(count, *rest), at=(row, *zeros), replica=replica)

    def columns(
        self, tensor: TensorSpec, first: int, count: int, param: str, column: int = 0, *, replica: int = 0
    ) -> None:
        """Columns ``[first, first + count)`` of a matrix, at column ``column`` of a parameter that is one."""
        size = (tensor.shape[0], count)
        self.place(tensor, param, lo=(0, first), size=size, at=(0, column), replica=replica)

    def hole(self, param: str, at: Sequence[int], size: Sequence[int]) -> None:
        """A box of a parameter's form that no tensor feeds."""
        if all(size):
            self._holes.append(Hole(param, tuple(at), tuple(size)))

    def done(self) -> Layout:
        """The layout. ``InputError("bad_layout")`` names the parameter and elements that are wrong."""
        layout = Layout(
            self._name,
            self._tensors,
            tuple(self._params.values()),
            tuple(self._pieces),
            tuple(self._holes),
            self._aliases,
            self._ties,
            self._unheld,
        )
        check_layout(layout)
        return layout
