"""The kernels of every backend under one set of names, so that one test holds all of them to the contract."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from deltastore.errors import PatchError
from deltastore.kernels import cpu
from deltastore.kernels.pieces import KernelTable, Pieces
from deltastore.kernels.reference import apply as reference_apply
from deltastore.kernels.reference import digest as reference_digest
from deltastore.kernels.reference import encode as reference_encode
from deltastore.kernels.reference import staged as reference_staged
from deltastore.kernels.rows import ChunkList, EncodedPatches, ListedChanges, Octets, Rows, StagedBits

__all__ = ["BOTH", "COMPILED", "REFERENCE", "Kernels", "each_backend", "refused_row"]


@dataclass(frozen=True)
class Kernels:
    """One backend, called in one way; ``name`` says which."""

    name: str
    encode_changed: Callable[[Pieces, Pieces, ChunkList], EncodedPatches]
    encode_listed: Callable[[KernelTable, ListedChanges, Pieces | None], EncodedPatches]
    digest_chunks: Callable[[Pieces, ChunkList], NDArray[np.uint64]]
    check: Callable[[KernelTable, Rows, Octets], None]
    resolve: Callable[[Pieces, Rows, Octets, StagedBits | None], tuple[StagedBits, NDArray[np.uint64]]]
    scatter: Callable[[Pieces, StagedBits], None]
    mismatches: Callable[[Pieces, StagedBits], int]
    apply: Callable[[Pieces, Rows, Octets], None]
    merge: Callable[[KernelTable, StagedBits, StagedBits], tuple[StagedBits, int]]


REFERENCE = Kernels(
    "reference",
    reference_encode.encode_changed,
    reference_encode.encode_listed,
    reference_digest.digest_chunks,
    reference_apply.check,
    reference_apply.resolve,
    reference_apply.scatter,
    reference_apply.mismatches,
    reference_apply.apply,
    reference_staged.merge,
)


def _compiled(threads: int, instructions: cpu.Instructions) -> Kernels:
    return Kernels(
        f"cpu {instructions.name} on {threads}",
        partial(cpu.encode_changed, threads=threads, instructions=instructions),
        partial(cpu.encode_listed, threads=threads, instructions=instructions),
        partial(cpu.digest_chunks, threads=threads, instructions=instructions),
        partial(cpu.check, threads=threads, instructions=instructions),
        partial(cpu.resolve, threads=threads, instructions=instructions),
        partial(cpu.scatter, threads=threads),
        partial(cpu.mismatches, threads=threads),
        partial(cpu.apply, threads=threads, instructions=instructions),
        partial(cpu.merge, threads=threads),
    )


_LEVELS = [level for level in cpu.Instructions if level <= cpu.supported_instructions()]

COMPILED = (
    *(_compiled(1, level) for level in _LEVELS),
    *(_compiled(threads, _LEVELS[-1]) for threads in (2, 3, 7)),
)
"""Every set of instructions that this processor has, and several numbers of threads."""

BOTH = (REFERENCE, COMPILED[-1])

each_backend = pytest.mark.parametrize("kernels", BOTH, ids=lambda kernels: kernels.name)


def refused_row(call: Callable[[], object]) -> int | None:
    """The row that a kernel refuses, or None; whatever else it raises is not its to raise."""
    try:
        call()
    except PatchError as error:
        return error.row
    return None
