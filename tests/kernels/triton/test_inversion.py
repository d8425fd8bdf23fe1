"""The inversion's kernels compile ahead of time, and what is refused before a launch; no GPU is needed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from deltastore.errors import InputError
from deltastore.kernels.blocks import Blocks, BoxOf
from deltastore.kernels.inversion import RULE, Span
from deltastore.kernels.triton.block_digests import WARPS, block_digests_kernel, digest_blocks
from deltastore.kernels.triton.boxes import box_tables
from deltastore.kernels.triton.inversion import ALIGNED, ANYWHERE, INVERT_WARPS, JOINED, invert, invert_kernel
from deltastore.kernels.triton.settle import SETTLE_WARPS, settle_kernel
from deltastore.kernels.triton.tables import ELEMENT_TYPES

CAPABILITIES = (80, 90, 100)
KINDS = (ALIGNED.value, JOINED.value, ANYWHERE.value)

TYPES = dict.fromkeys(("tasks", "rules", "outcomes"), "*i32") | {"new": "*i16", "old": "*i16", "first": "i32"}


def compiled(kernel: Any, constants: dict[str, Any], capability: int, warps: int, **types: str) -> Any:
    known = {**TYPES, **types}
    signature = {
        name: "constexpr" if name in constants else known.get(name, "*i64") for name in kernel.arg_names
    }
    return triton.compile(
        ASTSource(kernel, signature, constants),
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": warps, "enable_fp_fusion": False},
    )


def resources(cubin: bytes, folder: Path) -> dict[str, int]:
    """Registers of a thread, and its bytes of stack, where spilled registers go."""
    (folder / "kernel.cubin").write_bytes(cubin)
    command = [knobs.nvidia.cuobjdump.path, "-res-usage", str(folder / "kernel.cubin")]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {name: int(count) for name, count in re.findall(r"(REG|STACK|LOCAL):(\d+)", answer)}


@pytest.fixture(autouse=True)
def cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize(
    ("kernel", "constants", "warps"),
    [
        *((invert_kernel, {"kind": kind}, INVERT_WARPS[kind]) for kind in KINDS),
        (settle_kernel, {}, SETTLE_WARPS),
    ],
    ids=["aligned", "joined", "anywhere", "settle"],
)
def test_every_operation_is_rounded_by_itself_and_nothing_spills(
    kernel: Any, constants: dict[str, Any], warps: int, capability: int, tmp_path: Path
) -> None:
    result = compiled(kernel, constants, capability, warps)
    assert result.asm["cubin"][:4] == b"\x7fELF"
    assert f"sm_{capability}" in result.asm["ptx"]
    arithmetic = set(
        re.findall(r"\b(?:add|sub|mul|div|sqrt|fma|mad|rcp|rsqrt)\.[\w.]*f32", result.asm["ptx"])
    )
    assert arithmetic == {"add.rn.f32", "sub.rn.f32", "mul.rn.f32", "div.rn.f32", "sqrt.rn.f32"}
    assert ".ftz" not in result.asm["ptx"]
    used = resources(result.asm["cubin"], tmp_path)
    assert (used["STACK"], used["LOCAL"]) == (0, 0)
    assert used["REG"] <= 128


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_memory_that_is_aligned_is_moved_in_vectors(capability: int) -> None:
    result = compiled(invert_kernel, {"kind": ALIGNED.value}, capability, INVERT_WARPS[ALIGNED.value])
    for vector in ("ld.global.v4.b32", "st.global.v4.b32"):
        assert vector in result.asm["ptx"]


@pytest.mark.parametrize("capability", CAPABILITIES)
@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
def test_digests_of_blocks_compile(itemsize: int, capability: int, tmp_path: Path) -> None:
    for joined in (True, False):
        constants = {"joined": joined, "narrow": ELEMENT_TYPES[itemsize][0]}
        result = compiled(block_digests_kernel, constants, capability, WARPS, bits=f"*i{itemsize * 8}")
        assert resources(result.asm["cubin"], tmp_path)["REG"] <= 128


def test_axes_that_all_memory_runs_through_are_one() -> None:
    blocks = Blocks([BoxOf((4, 6, 8), (1, 0, 0), (2, 6, 8), 3), BoxOf((4, 6, 8), (0, 2, 0), (2, 3, 8), 3)])
    whole = torch.zeros(4, 6, 8, dtype=torch.int32)
    memory = [(whole[1:3],) * 3, (whole[:2, 2:5],) * 3]
    tables = box_tables(blocks, memory, [0, 0])
    assert tables.joined.tolist() == [True, False]
    assert tables.sides.tolist() == [[96, 1, 4, 4, 4], [24, 1, 4, 4, 4], [2, 48, 192, 192, 192]]
    assert tables.boxes[:, 2].tolist() == [48, 16]
    strided = box_tables(blocks, [(whole[1:3], whole[1:3], whole[1:3].mT.contiguous().mT), memory[1]], [0, 0])
    assert strided.joined.tolist() == [False, False]


def arguments() -> dict[str, Any]:
    return {
        "blocks": Blocks([BoxOf((3, 5), (0, 0), (3, 5), 3)]),
        "spans": span(),
        "rules": np.zeros(1, RULE),
        "wanted": np.zeros(1, np.uint64),
        "new": torch.zeros(15, dtype=torch.int16),
        "old": torch.zeros(15, dtype=torch.int16),
    }


def span(**changed: Any) -> list[Span]:
    values: Any = {name: torch.zeros(3, 5) for name in ("master", "mean", "square")}
    return [Span(**{**values, "rule": 0, **changed})]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"spans": []}, "wrong_shape"),
        ({"wanted": np.zeros(2, np.uint64)}, "wrong_shape"),
        ({"wanted": np.zeros(1, np.int64)}, "wrong_shape"),
        ({"new": torch.zeros(14, dtype=torch.int16)}, "wrong_memory"),
        ({"old": torch.zeros(30, dtype=torch.int16)[::2]}, "wrong_memory"),
        ({"old": torch.zeros(15, dtype=torch.bfloat16)}, "wrong_memory"),
        ({"old": torch.zeros(15, dtype=torch.int16, device="meta")}, "wrong_memory"),
        ({"new": np.zeros(15, np.uint16)}, "wrong_memory"),
        ({"rules": np.zeros(1, np.float32)}, "wrong_dtype"),
        ({"spans": span(rule=1)}, "bad_argument"),
        ({"spans": span(rule=-1)}, "bad_argument"),
        ({"spans": span(mean=torch.zeros(5, 3))}, "wrong_shape"),
        ({"spans": span(square=torch.zeros(3, 5, dtype=torch.bfloat16))}, "wrong_shape"),
        ({"spans": span(master=np.zeros((3, 5), np.float32))}, "wrong_memory"),
        ({"spans": span(master=torch.zeros(3, 5, device="meta"))}, "wrong_memory"),
        ({"spans": span(mean=torch.zeros(3, 5).to_sparse())}, "wrong_memory"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(changed: dict[str, Any], code: str) -> None:
    with pytest.raises(InputError) as refused:
        invert(**{**arguments(), **changed})
    assert refused.value.code == code


@pytest.mark.parametrize(
    "bits",
    [
        torch.zeros(14, dtype=torch.int16),
        torch.zeros(15, 1, dtype=torch.int16),
        torch.zeros(30, dtype=torch.int16)[::2],
        torch.zeros(15, dtype=torch.float16),
    ],
)
def test_buffers_that_hold_no_blocks_are_refused(bits: torch.Tensor) -> None:
    with pytest.raises(InputError) as refused:
        digest_blocks(Blocks([BoxOf((3, 5), (0, 0), (3, 5), 3)]), bits)
    assert refused.value.code == "wrong_memory"
