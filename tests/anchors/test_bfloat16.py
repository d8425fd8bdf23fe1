"""The data type that deltastore adds to zarr-python."""

from __future__ import annotations

import json
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import zarr
from zarr.dtype import data_type_registry

from deltastore.anchors.bfloat16 import BFloat16, DataTypeValidationError, register

TYPE = BFloat16()


@pytest.fixture(autouse=True)
def _known_to_zarr() -> None:
    register()


def bits_of(scalar: Any) -> int:
    return int(np.asarray(scalar).view(np.uint16))


def test_the_entry_point_leads_here() -> None:
    (found,) = entry_points(group="zarr.data_type", name="bfloat16")
    assert found.load() is BFloat16


def test_zarr_finds_it_by_name_and_by_dtype() -> None:
    assert data_type_registry.match_json("bfloat16", zarr_format=3) == TYPE
    assert data_type_registry.match_dtype(np.dtype(ml_dtypes.bfloat16)) == TYPE


@pytest.mark.parametrize("dtype", ["float16", "uint16", "V2", ml_dtypes.float8_e5m2])
def test_other_dtypes_are_not_taken_for_it(dtype: Any) -> None:
    with pytest.raises(DataTypeValidationError):
        BFloat16.from_native_dtype(np.dtype(dtype))


@pytest.mark.parametrize("bits", [0x0000, 0x8000, 0x3F80, 0x7F80, 0xFF80, 0x7FC0, 0x7FC1, 0xFFFF, 0x0001])
def test_fill_values_keep_their_bits(bits: int) -> None:
    scalar = np.array(bits, dtype=np.uint16).view(ml_dtypes.bfloat16)[()]
    written = TYPE.to_json_scalar(scalar, zarr_format=3)
    read = TYPE.from_json_scalar(json.loads(json.dumps(written)), zarr_format=3)
    assert bits_of(read) == bits


@pytest.mark.parametrize("value", [None, True, "zero", "0x7fc", [], {}])
def test_other_fill_values_are_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        TYPE.from_json_scalar(value, zarr_format=3)


@pytest.mark.parametrize("value", [None, True, "1.0"])
def test_what_is_no_number_is_not_cast(value: Any) -> None:
    with pytest.raises(TypeError):
        TYPE.cast_scalar(value)


def test_the_default_is_plus_zero() -> None:
    assert bits_of(TYPE.default_scalar()) == 0


def test_zarr_v2_is_refused() -> None:
    with pytest.raises(ValueError, match="Zarr v3 only"):
        TYPE.to_json(2)
    with pytest.raises(DataTypeValidationError):
        BFloat16.from_json({"name": "<V2", "object_codec_id": None}, zarr_format=2)


def test_big_endian_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="little-endian"):
        BFloat16(endianness="big").to_native_dtype()


def test_zarr_python_writes_and_reads_every_bit(tmp_path: Path) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16).reshape(256, 256)
    with zarr.config.set({"array.write_empty_chunks": True}):
        target = zarr.create_array(tmp_path, shape=(256, 256), chunks=(64, 256), dtype="bfloat16")
        target[...] = bits.view(ml_dtypes.bfloat16)
    opened = zarr.open_array(tmp_path, mode="r")
    assert np.asarray(opened[...]).view(np.uint16).tobytes() == bits.tobytes()
