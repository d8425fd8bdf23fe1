"""Live memory: NumPy arrays and torch tensors seen as bits, and what is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from deltastore.errors import InputError
from deltastore.format.dtypes import DTYPES
from deltastore.layout.memory import bits_of, element_type, same_memory
from tests.doubles.models import NATIVE, bf16

TORCH = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "U16": torch.uint16,
    "I16": torch.int16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "U64": torch.uint64,
    "I64": torch.int64,
    "F16": torch.float16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "F8_E8M0": torch.float8_e8m0fnu,
}


def patterns(name: str) -> np.ndarray[Any, Any]:
    """Unsigned bits of the element's width: the corners, and some."""
    width = DTYPES[name].bits
    top = (1 << width) - 1
    values = [0, 1, 1 << (width - 1), top, top // 3, top // 5, 7, top >> 1]
    found = np.array(values, dtype=np.uint64).astype(DTYPES[name].storage)
    return found & np.uint8(1) if name == "BOOL" else found


def torch_tensor(name: str, shape: tuple[int, ...] = (2, 4)) -> torch.Tensor:
    octets = torch.from_numpy(patterns(name).view(np.uint8).copy())
    return octets.view(TORCH[name]).reshape(shape)


def test_every_type_of_the_format_has_a_live_one() -> None:
    assert set(NATIVE) == set(TORCH) == set(DTYPES)


@pytest.mark.parametrize("name", sorted(DTYPES))
class TestEveryType:
    """The bits of each element type, without a copy."""

    def test_numpy(self, name: str) -> None:
        bits = patterns(name)
        tensor = bits.copy().view(NATIVE[name]).reshape(2, 4)
        seen = bits_of("w", tensor)
        assert element_type("w", tensor).name == name
        assert seen.dtype == DTYPES[name].storage
        assert (seen.reshape(-1) == bits).all()
        seen[1, 3] = seen[0, 1]
        assert tensor.reshape(-1).view(seen.dtype)[7] == bits[1]

    def test_torch(self, name: str) -> None:
        tensor = torch_tensor(name)
        seen = bits_of("w", tensor)
        assert element_type("w", tensor).name == name
        assert seen.dtype == DTYPES[name].storage
        assert (seen.reshape(-1) == patterns(name)).all()
        seen[1, 3] = seen[0, 1]
        assert (bits_of("w", tensor) == seen).all()

    def test_torch_without_order_axes_or_elements(self, name: str) -> None:
        bits = patterns(name)
        transposed = torch_tensor(name).t()
        assert (bits_of("w", transposed) == bits.reshape(2, 4).T).all()
        assert bits_of("w", transposed).strides == (bits.itemsize, bits.itemsize * 4)
        assert (bits_of("w", torch_tensor(name)[:, 1::2]) == bits.reshape(2, 4)[:, 1::2]).all()
        scalar = torch_tensor(name)[1, 2]
        assert bits_of("w", scalar).shape == ()
        assert bits_of("w", scalar) == bits[6]
        assert bits_of("w", torch_tensor(name)[:0]).shape == (0, 4)


def test_a_parameter_is_seen_through_and_keeps_its_gradient() -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.sum().backward()
    bits_of("w", parameter)[1] = 0x40000000
    assert parameter.tolist() == [1.0, 2.0, 1.0]
    assert parameter.grad is not None
    assert parameter.requires_grad


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(2, device="meta"),
        lambda: torch.eye(2).to_sparse(),
        lambda: torch.zeros(1).expand(4),
        lambda: torch.zeros(6).as_strided((4, 3), (1, 1)),
        lambda: torch.ones(2, dtype=torch.complex64).conj(),
        lambda: torch.ones(2, dtype=torch.complex64).conj().imag,
        lambda: np.broadcast_to(np.zeros(1, np.float32), (4,)),
        lambda: np.lib.stride_tricks.sliding_window_view(np.zeros(6, np.float32), 3),
        lambda: np.zeros(2, ">f4"),
        lambda: np.zeros(2, ">i8"),
        lambda: [1.0, 2.0],
        lambda: 1.0,
        lambda: None,
        lambda: "text",
        lambda: memoryview(b"12"),
    ],
)
def test_memory_that_cannot_be_seen_is_refused_by_name(make: Callable[[], Any]) -> None:
    with pytest.raises(InputError) as caught:
        bits_of("the.tensor", make())
    assert (caught.value.code, caught.value.where) == ("wrong_memory", "the.tensor")
    assert "the.tensor" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(2, dtype=torch.complex128),
        lambda: np.zeros(2, np.complex128),
        lambda: np.zeros(2, np.longdouble),
        lambda: np.zeros(2, object),
        lambda: np.zeros(2, "U3"),
        lambda: np.zeros(2, "S2"),
        lambda: np.zeros(2, "V2"),
        lambda: np.zeros(2, "M8[s]"),
        lambda: np.zeros(2, [("a", "u2")]),
    ],
)
def test_element_types_that_the_format_lacks_are_refused_by_name(make: Callable[[], Any]) -> None:
    with pytest.raises(InputError) as caught:
        bits_of("the.tensor", make())
    assert (caught.value.code, caught.value.where) == ("wrong_dtype", "the.tensor")


@pytest.mark.parametrize("layout", ["reversed", "transposed", "stepped", "fortran", "inner"])
def test_numpy_memory_in_any_order(layout: str) -> None:
    base = np.arange(24, dtype=np.uint16).reshape(4, 6)
    view = {
        "reversed": base[::-1, ::-1],
        "transposed": base.T,
        "stepped": base[1::2, ::3],
        "fortran": np.asfortranarray(base),
        "inner": base[:, 2],
    }[layout]
    seen = bits_of("w", view)
    assert (seen == view).all()
    assert np.shares_memory(seen, view)


def test_subclasses_of_arrays_show_all_their_memory() -> None:
    masked = np.ma.masked_array(np.arange(4, dtype=np.uint16), mask=[False, True, False, True])
    seen = bits_of("w", masked)
    assert type(seen) is np.ndarray
    assert seen.tolist() == [0, 1, 2, 3]
    matrix = np.arange(6, dtype=np.uint16).reshape(2, 3).view(np.matrix)
    assert bits_of("w", matrix)[1].shape == (3,)


class TestSameMemory:
    """Tied tensors are exactly the same elements."""

    def test_what_is_the_same(self) -> None:
        base = bf16(np.arange(12)).reshape(3, 4)
        view = bits_of("a", base)
        assert same_memory(view, bits_of("b", base[:]))
        assert same_memory(bits_of("a", base.T), bits_of("b", base.T))

    def test_what_is_not(self) -> None:
        base = bf16(np.arange(16)).reshape(4, 4)
        view = bits_of("a", base)
        for other in (base[1:], base.reshape(2, 8), base.T, base[:, :2], base.copy(), base.view(np.uint8)):
            assert not same_memory(view, bits_of("b", other))

    def test_torch_and_numpy_over_one_memory(self) -> None:
        base = np.zeros((2, 3), np.float32)
        assert same_memory(bits_of("a", torch.from_numpy(base)), bits_of("b", base))
