"""Patches of every element type, width, encoding and edge: SPEC section 9."""

from __future__ import annotations

from typing import Any

import numpy as np

from deltastore.format.dtypes import DTYPES, Dtype
from deltastore.format.patch import encode_patch
from deltastore.kernels.reference.ordered import ordered
from spec.vectors.make.bad_patches import bad_patches
from spec.vectors.make.by_hand import Run, moved, patch_of

Fields = dict[str, Any]
Bits = np.ndarray[Any, Any]

SIZE = 100
WIDTHS = (2, 4, 8, 16, 32, 64)


def _moved(dtype: Dtype, old: Bits, rng: np.random.Generator, reach: int) -> Bits:
    """Every element moved by up to ``reach`` steps in ordered-integer space."""
    step = rng.integers(1, reach + 1, len(old), dtype=np.int64) * rng.choice([-1, 1], len(old))
    at = ordered(old, floating=dtype.floating) + step.astype(f"<i{dtype.itemsize}").view(dtype.storage)
    return ordered(at, floating=dtype.floating)


def _case(name: str, dtype: Dtype, base: Bits, result: Bits, *, may_be_raw: bool = True) -> Fields:
    positions = np.flatnonzero(base != result).astype(np.uint32)
    patch = encode_patch(
        dtype, len(base), positions, base[positions], result[positions], result if may_be_raw else None
    )
    return {
        "name": name,
        "dtype": dtype.name,
        "elements": len(base),
        "encoding": int(patch.encoding),
        "patch": patch.data.hex(),
        "base": base.tobytes().hex(),
        "result": result.tobytes().hex(),
        "count": patch.count,
    }


def _good() -> list[Fields]:
    rng = np.random.default_rng(9)
    rows = []
    for dtype in DTYPES.values():
        base = rng.integers(0, 256, SIZE * dtype.itemsize, dtype=np.uint8).view(dtype.storage)
        for changed, reach in ((1, 1), (5, 1), (20, 60), (SIZE, 3)):
            result = base.copy()
            where = rng.choice(SIZE, changed, replace=False)
            result[where] = _moved(dtype, base[where], rng, reach)
            rows.append(_case(f"{dtype.name}, {changed} of {SIZE}, up to {reach} steps", dtype, base, result))
        result = rng.integers(0, 256, SIZE * dtype.itemsize, dtype=np.uint8).view(dtype.storage)
        rows.append(_case(f"{dtype.name}, all replaced", dtype, base, result))
        rows.append(_case(f"{dtype.name}, one element", dtype, base[:1], base[:1] ^ dtype.storage.type(1)))
    return rows + _special_values() + _every_width() + _edges() + _raw()


def _special_values() -> list[Fields]:
    bf16 = DTYPES["BF16"]
    signs = np.array([0x0000, 0x8000, 0x0000, 0x8000] * 8, dtype="<u2")
    nans = np.array([0x7FC0, 0x7F81, 0xFFC1, 0xFF81, 0x7F80, 0xFF80, 0x0001, 0x8001] * 4, dtype="<u2")
    wide = np.full(2000, 0x3F80, dtype="<u2")
    mixed = wide.copy()
    mixed[::7] += 1
    mixed[3::33] -= 100
    mixed[5::50] = 0xFFC1
    return [
        _case("-0.0 and +0.0 change places", bf16, signs, signs ^ np.uint16(0x8000), may_be_raw=False),
        _case("zeros become NaN payloads and infinities", bf16, signs, nans, may_be_raw=False),
        _case("NaN payloads, raw", bf16, signs, nans),
        _case("three runs", bf16, wide, mixed),
    ]


def _by_hand(name: str, dtype: Dtype, base: list[int], *runs: Run) -> Fields:
    result = list(base)
    for run in runs:
        for position, bits in run.new.items():
            result[position] = bits
    return {
        "name": name,
        "dtype": dtype.name,
        "elements": len(base),
        "encoding": 0,
        "patch": patch_of(len(base), dtype, *runs).hex(),
        "base": np.array(base, dtype.storage).tobytes().hex(),
        "result": np.array(result, dtype.storage).tobytes().hex(),
        "count": sum(len(run.new) for run in runs),
    }


def _widths(dtype: Dtype) -> list[int]:
    return [width for width in WIDTHS if width <= dtype.bits]


def _every_width() -> list[Fields]:
    """For every type a run of each width, whose steps are the largest that it holds, both ways."""
    rows = []
    for dtype in DTYPES.values():
        base = [(7 * place * place + place) % 2**dtype.bits for place in range(8)]
        for width in _widths(dtype):
            most = 2 ** (width - 1) - 1
            steps = {0: most, 2: -most, 5: 1, 7: -1}
            new = {place: moved(base[place], step, dtype) for place, step in steps.items()}
            rows.append(
                _by_hand(f"{dtype.name}, a run of width {width}", dtype, base, Run(width, new, low=1))
            )
    f64, bf16 = DTYPES["F64"], DTYPES["BF16"]
    base = [place << 52 for place in range(18)]
    runs = [
        Run(
            width,
            {place: moved(base[place], step, f64) for place, step in ((at, 1), (at + 9, -1))},
            low=at % 4,
        )
        for at, width in enumerate(WIDTHS)
    ]
    rows.append(_by_hand("six runs", f64, base, *runs))
    still = [0x3F80] * 4
    new = dict.fromkeys((0, 3), 0x3F80)
    rows.append(_by_hand("a residue that says no step", bf16, still, Run(2, new)))
    return rows


def _edges() -> list[Fields]:
    """Positions, low bits and sizes at their ends, and values at the ends of ordered-integer space."""
    bf16, u8, i8, f32 = (DTYPES[name] for name in ("BF16", "U8", "I8", "F32"))
    base = [0x3F80] * 40
    rows = [
        _by_hand(f"{low} low bits", bf16, base, Run(2, dict.fromkeys((0, 1, 17, 39), 0x3F81), low=low))
        for low in range(20)
    ]
    one = dict.fromkeys
    rows += [
        _by_hand("one element of one", bf16, [0x3F80], Run(2, {0: 0x3F81})),
        _by_hand("the first element", bf16, base, Run(2, {0: 0x3F81}, low=5)),
        _by_hand("the last element", bf16, base, Run(2, {39: 0x3F81}, low=5)),
        _by_hand("every element", bf16, base, Run(2, one(range(40), 0x3F7F))),
        _by_hand("every element, with low bits", bf16, base, Run(4, one(range(40), 0x3F79), low=2)),
        _by_hand("sections that fill their words", bf16, [0x3F80] * 17, Run(2, one(range(16), 0x3F81))),
        _by_hand("sections one bit beyond a word", bf16, [0x3F80] * 17, Run(2, one(range(17), 0x3F81))),
        _by_hand("U8 from 255 to 0 is a step of one", u8, [255, 0], Run(2, {0: 0, 1: 255})),
        _by_hand("I8 from 127 to -128 is a step of one", i8, [127, 128], Run(2, {0: 128, 1: 127})),
        _by_hand("the ends of BF16 meet", bf16, [0x7FFF, 0xFFFF], Run(2, {0: 0xFFFF, 1: 0x7FFF})),
        _by_hand("from -0.0 to +0.0 is a step of one", bf16, [0x8000, 0x0000], Run(2, {0: 0, 1: 0x8000})),
        _by_hand(
            "subnormals around zero", bf16, [0x0001, 0x8001, 0x0002], Run(4, {0: 0x8001, 1: 1, 2: 0x8000})
        ),
        _by_hand("infinity to a NaN", f32, [0x7F800000, 0xFF800000], Run(2, {0: 0x7F800001, 1: 0xFF800001})),
        _by_hand(
            "a signalling NaN keeps its payload",
            f32,
            [0x7FA12345, 0xFFC00000],
            Run(4, {0: 0x7FA12344}),
            Run(32, {1: 0x7F812345}),
        ),
    ]
    return rows


def _raw() -> list[Fields]:
    """Raw patches of every type, of sizes that fill their words and that do not."""
    rows = []
    for dtype in DTYPES.values():
        for count in (1, 3, 4):
            bits = [(2**dtype.bits - 1 - 37 * place) % 2**dtype.bits for place in range(count)]
            result = np.array(bits, dtype.storage).tobytes()
            rows.append(
                {
                    "name": f"{dtype.name}, raw, {count} of {count}",
                    "dtype": dtype.name,
                    "elements": count,
                    "encoding": 1,
                    "patch": (result + bytes(-len(result) % 4)).hex(),
                    "base": bytes(len(result)).hex(),
                    "result": result.hex(),
                    "count": count,
                }
            )
    return rows


def vectors() -> object:
    """Patch and base bits -> bits of the version; or what is refused."""
    return {"ok": _good(), "err": bad_patches()}


def large_vectors() -> object:
    """Chunks of 2^20 elements; bits are those of ``fill`` but for the (position, bits) of ``except``."""
    u8, n = DTYPES["U8"], 2**20
    rows = []
    for name, new, low in (
        ("first, middle and last of the largest chunk", {0: 1, n // 2: 255, n - 1: 1}, 19),
        ("the last of the largest chunk, few low bits", {n - 1: 1}, 6),
        ("every 4096th of the largest chunk", dict.fromkeys(range(4095, n, 4096), 1), 12),
    ):
        rows.append(
            {
                "name": name,
                "dtype": "U8",
                "elements": n,
                "encoding": 0,
                "patch": patch_of(n, u8, Run(2, new, low=low)).hex(),
                "base": {"fill": "00", "except": []},
                "result": {"fill": "00", "except": [[at, f"{bits:02x}"] for at, bits in sorted(new.items())]},
                "count": len(new),
            }
        )
    beyond = patch_of(2 * n, u8, Run(2, {n: 1}, low=19))  # its sections take the same words
    errors = [
        {
            "name": "a position at 2**20, which is a bit behind the high section",
            "dtype": "U8",
            "elements": n,
            "encoding": 0,
            "patch": beyond.hex(),
            "base": {"fill": "00", "except": []},
            "code": "bad_patch",
            "check": "DS030",
        }
    ]
    return {"ok": rows, "err": errors}
