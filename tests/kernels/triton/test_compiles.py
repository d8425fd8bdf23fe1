"""Every kernel compiles ahead of time for the GPUs that it is for; no GPU is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from deltastore.kernels.triton.apply import apply_kernel
from deltastore.kernels.triton.check import check_kernel
from deltastore.kernels.triton.compare import compare_kernel, tally_kernel
from deltastore.kernels.triton.count_ones import count_ones_kernel
from deltastore.kernels.triton.digest import digest_box_kernel, digest_flat_kernel
from deltastore.kernels.triton.emit import emit_kernel, emit_raw_kernel
from deltastore.kernels.triton.mismatches import mismatches_kernel
from deltastore.kernels.triton.tables import ELEMENT_TYPES

WORDS = dict.fromkeys(
    ("body", "runs", "task_runs", "task_rows", "counts", "tasks", "found", "positions"), "*i32"
)
WORDS |= {"ranks": "*i32", "first": "i32", "end": "i32"}

KERNELS = (
    apply_kernel,
    check_kernel,
    compare_kernel,
    count_ones_kernel,
    digest_box_kernel,
    digest_flat_kernel,
    emit_kernel,
    emit_raw_kernel,
    mismatches_kernel,
    tally_kernel,
)


def variants(kernel: Any, itemsizes: Iterable[int]) -> Iterator[dict[str, Any]]:
    """The values of its compile-time parameters that launches give it."""
    for itemsize in itemsizes if "narrow" in kernel.arg_names else (2,):
        narrow, wide, _ = ELEMENT_TYPES[itemsize]
        values = {"itemsize": itemsize, "bits": itemsize * 8, "narrow": narrow, "wide": wide}
        for raw in (False, True):
            chosen = {
                name: value for name, value in {**values, "raw": raw}.items() if name in kernel.arg_names
            }
            if not raw or "raw" in chosen:
                yield chosen


def signature(kernel: Any, constants: dict[str, Any]) -> dict[str, str]:
    types = {}
    if "narrow" in constants:
        types = dict.fromkeys(("old_bits", "new_bits"), f"*i{constants['narrow'].primitive_bitwidth}")
    return {
        name: "constexpr" if name in constants else {**WORDS, **types}.get(name, "*i64")
        for name in kernel.arg_names
    }


@pytest.mark.parametrize(("capability", "itemsizes"), [(80, (2,)), (90, (1, 2, 4, 8)), (100, (2,))])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_a_cubin_comes_out(
    kernel: Any, capability: int, itemsizes: tuple[int, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    for constants in variants(kernel, itemsizes):
        source = ASTSource(kernel, signature(kernel, constants), constants)
        compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32))
        assert compiled.asm["cubin"][:4] == b"\x7fELF"
        assert f"sm_{capability}" in compiled.asm["ptx"]
