"""Whether tensors are exactly those of a table."""

from __future__ import annotations

import pytest

from deltastore.errors import InputError
from deltastore.format.dtypes import DTYPES
from deltastore.format.table import TensorSpec
from deltastore.layout.cutting import plain_table
from deltastore.layout.fitting import check_tensors

SPECS = [
    TensorSpec("layers.0.weight", (2, 3), DTYPES["BF16"]),
    TensorSpec("layers.1.weight", (2, 3), DTYPES["BF16"]),
    TensorSpec("norm", (), DTYPES["F32"]),
]
TABLE = plain_table(SPECS)


def refused(specs: list[TensorSpec]) -> InputError:
    with pytest.raises(InputError) as caught:
        check_tensors(TABLE, specs)
    return caught.value


def test_the_same_tensors_in_any_order_fit() -> None:
    check_tensors(TABLE, SPECS)
    check_tensors(TABLE, reversed(SPECS))


def test_an_unknown_tensor() -> None:
    error = refused([*SPECS, TensorSpec("layers.2.weight", (2, 3), DTYPES["BF16"])])
    assert (error.code, error.where) == ("unknown_tensor", "layers.2.weight")


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_tensor(missing: int) -> None:
    error = refused(SPECS[:missing] + SPECS[missing + 1 :])
    assert (error.code, error.where) == ("missing_tensor", SPECS[missing].name)
    assert "2 of 3" in str(error)


def test_no_tensors_at_all() -> None:
    assert refused([]).code == "missing_tensor"


@pytest.mark.parametrize("shape", [(3, 2), (2, 3, 1), (6,), ()])
def test_another_shape_is_named_with_the_right_one(shape: tuple[int, ...]) -> None:
    error = refused([TensorSpec("layers.0.weight", shape, DTYPES["BF16"]), *SPECS[1:]])
    assert (error.code, error.where) == ("wrong_shape", "layers.0.weight")
    assert str(list(shape)) in str(error)
    assert "[2, 3]" in str(error)


def test_another_dtype_is_named_with_the_right_one() -> None:
    error = refused([TensorSpec("layers.0.weight", (2, 3), DTYPES["F16"]), *SPECS[1:]])
    assert (error.code, error.where) == ("wrong_dtype", "layers.0.weight")
    assert "F16" in str(error)
    assert "BF16" in str(error)


def test_a_tensor_given_twice() -> None:
    error = refused([*SPECS, SPECS[0]])
    assert (error.code, error.where) == ("bad_argument", "layers.0.weight")
