"""Orientations of experts that only a kernel knows: nothing can be written into them in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from deltastore.errors import InputError

__all__ = ["refuse_private"]

_BLOCKS: Final = "its rows are permuted and stand in blocks, which shapes need not show"
_SHUFFLED: Final = "its elements are shuffled in tiles of 16 by 16"
_PACKED: Final = "its values are quantised and packed for one kernel"

_PRIVATE: Final = {
    "flashinfer_trtllm": _BLOCKS,
    "flashinfer_trtllm_routed": _BLOCKS,
    "experimental_sgl_trtllm": _BLOCKS,
    "trtllm": _BLOCKS,
    "aiter": _SHUFFLED,
    "amx": "its elements are packed into tiles of the processor",
    "cpu": "its elements are packed into tiles of the processor",
    "npu": "it is transposed and cast to the NZ format of the device",
    "ascend": "it is transposed and cast to the NZ format of the device",
    "swiglu_interleaved": "its rows of gate and up alternate",
    "moonep": "it is gathered from all processes, with up in no parameter",
    "flashinfer_cutedsl": _PACKED,
    "flashinfer_mxfp4": _PACKED,
    "flashinfer_megamoe": _PACKED,
    "deep_gemm_mega_moe": _PACKED,
    "cutlass": "its scales are swizzled in blocks for one kernel",
    "marlin": _PACKED,
    "machete": _PACKED,
    "humming": _PACKED,
}


def refuse_private(name: str, *, known: Sequence[str]) -> None:
    """Raise ``InputError("private_layout")`` if ``name`` is that of a kernel whose memory is its own."""
    reason = _PRIVATE.get(name.lower().replace("-", "_"))
    if reason is not None:
        raise InputError(
            "private_layout",
            f"experts={name!r}: only the kernel knows how it holds experts ({reason}); start the engine with "
            f"a MoE backend whose layout is one of {', '.join(known)} (such as triton, which is standard)",
            where=name,
        )
