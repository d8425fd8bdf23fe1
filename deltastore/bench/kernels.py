"""``deltastore bench kernels``: the compiled kernels beside what memory, NumPy and a rival can do.

Everything is measured in one process on one set of weights, so a ratio means something on a noisy machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from deltastore.bench.figure import is_reached
from deltastore.bench.model import Model, Step, make_model
from deltastore.bench.rival import xor_zstd_bytes
from deltastore.bench.timing import best_of_both, best_seconds
from deltastore.demo.bound import lower_bound
from deltastore.format.pack import index_bytes
from deltastore.kernels.cpu import (
    apply,
    check,
    digest_chunks,
    encode_changed,
    mismatches,
    resolve,
    scatter,
)
from deltastore.kernels.cpu.ceiling import read_both
from deltastore.kernels.grid import ChunkGrid
from deltastore.kernels.pieces import GridArray, KernelTable, Piece, Pieces
from deltastore.kernels.rows import ChunkList, EncodedPatches, chunk_list

__all__ = ["DENSITIES", "Measured", "measure_kernels"]

DENSITIES: Final = (0.001, 0.005, 0.02, 0.1)

_SMALL_CHUNKS: Final = 100_000
_SMALL_ELEMENTS: Final = 64

Bits = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Measured:
    """One figure: what was measured, at which density and with how many threads, and beside what.

    ``value`` is in ``unit``; ``ratio`` is to ``beside``, measured in the same run. ``target`` is what the
    ratio (or, without one, the value) should reach or, where ``at_most``, not exceed.
    """

    name: str
    density: float | None
    threads: int
    value: float
    unit: str
    ratio: float | None = None
    beside: str = ""
    target: float | None = None
    at_most: bool = False

    @property
    def reached(self) -> bool | None:
        """Whether the target is reached; None where there is none."""
        return is_reached(self.value if self.ratio is None else self.ratio, self.target, self.at_most)


def measure_kernels(shapes: str, layers: int, threads: int, repeats: int) -> Iterator[Measured]:
    """Measure every kernel, with one thread and with ``threads``; figures come as they are found."""
    model, step_of = make_model(shapes, layers)
    counts = sorted({1, threads})
    yield from _digests(model, counts, repeats)
    for density in DENSITIES:
        step = step_of(density)
        yield from _encoded(model, step, counts, repeats)
        patches = encode_changed(step.model.pieces, model.pieces, _all_chunks(model))
        yield from _sizes(model, step, patches)
        yield from _applied(model, step, patches, counts, repeats)
    yield from _fixed_cost(counts, repeats)


def _all_chunks(model: Model) -> ChunkList:
    order = model.table.chunk_order()
    return chunk_list(order[:, 1], order[:, 2])


def _flat(model: Model) -> Bits:
    return np.concatenate([bits.reshape(-1) for bits in model.tensors.values()])


def _read(old: Model, new: Model, threads: int) -> None:
    for name, bits in old.tensors.items():
        read_both(bits, new.tensors[name], threads=threads)


def _digests(model: Model, counts: list[int], repeats: int) -> Iterator[Measured]:
    """The digest beside a plain read of the same weights."""
    other = model.copy()
    for threads in counts:
        digest = partial(digest_chunks, model.pieces, _all_chunks(model), threads=threads)
        seconds, least = best_of_both(digest, partial(_read, model, other, threads), repeats=repeats)
        rate, ceiling = model.table.nbytes / seconds, 2 * model.table.nbytes / least
        target = 0.3 if threads == 1 else None
        yield Measured("digest", None, threads, rate / 1e9, "GB/s", rate / ceiling, "read ceiling", target)


def _encoded(model: Model, step: Step, counts: list[int], repeats: int) -> Iterator[Measured]:
    """Diff and encode in one call, beside a plain read of both sets of weights."""
    for threads in counts:
        encode = partial(encode_changed, step.model.pieces, model.pieces, _all_chunks(model), threads=threads)
        read = partial(_read, model, step.model, threads)
        seconds, least = best_of_both(encode, read, repeats=repeats)
        both = 2 * model.table.nbytes
        yield Measured("read ceiling", step.density, threads, both / least / 1e9, "GB/s")
        target = {1: 0.55, 2: 0.8}.get(threads) if 0.01 < step.density < 0.03 else None
        yield Measured(
            "diff+encode",
            step.density,
            threads,
            both / seconds / 1e9,
            "GB/s",
            least / seconds,
            "read ceiling",
            target,
        )


def _sizes(model: Model, step: Step, patches: EncodedPatches) -> Iterator[Measured]:
    size = len(patches.body) + index_bytes(len(patches.rows))
    bound = lower_bound(model.tensors, step.model.tensors).nbytes
    rival = xor_zstd_bytes(model.tensors, step.model.tensors)
    promised = 0.004 < step.density < 0.06
    for beside, least, most in (("entropy bound", bound, 1.25), ("XOR + zstd-1", rival, 0.58)):
        yield Measured(
            "size",
            step.density,
            1,
            size / step.changed,
            "B/changed",
            size / least,
            beside,
            most if promised else None,
            at_most=True,
        )


def _applied(
    model: Model, step: Step, patches: EncodedPatches, counts: list[int], repeats: int
) -> Iterator[Measured]:
    target = model.copy()
    pieces, density = target.pieces, step.density
    rows, body = patches.rows, patches.body

    def reset() -> None:
        for name, bits in model.tensors.items():
            target.tensors[name][...] = bits

    numpy_rate = step.changed / _numpy_scatter(model, step, repeats)
    yield Measured("NumPy scatter, ready indices", density, 1, numpy_rate / 1e6, "M elements/s")
    staged, _ = resolve(pieces, rows, body)
    for threads in counts:
        works: dict[str, Callable[[], object]] = {
            "decode+apply": partial(apply, pieces, rows, body, threads=threads),
            "scatter of staged bits": partial(scatter, pieces, staged, threads=threads),
            "read-back": partial(mismatches, pieces, staged, threads=threads),
            "resolve": partial(resolve, pieces, rows, body, threads=threads),
            "check": partial(check, model.table.kernels, rows, body, threads=threads),
        }
        for name, work in works.items():
            rate = step.changed / best_seconds(work, repeats=repeats, before=reset)
            promised = name == "decode+apply" and 0.008 < density < 0.03
            wanted = {1: 0.6, 2: 1.0}.get(threads) if promised else None
            yield Measured(
                name, density, threads, rate / 1e6, "M elements/s", rate / numpy_rate, "NumPy scatter", wanted
            )


def _numpy_scatter(model: Model, step: Step, repeats: int) -> float:
    """Seconds of ``flat[indices] = values`` over all tensors, with int64 indices and values ready."""
    flat = _flat(model)
    after = _flat(step.model)
    indices = np.flatnonzero(flat != after)
    values = after[indices]
    after[...] = flat

    def put() -> None:
        flat[indices] = values

    def reset() -> None:  # as for the kernels: no target is in a cache when the clock starts
        flat[...] = after

    return best_seconds(put, repeats=repeats, before=reset)


def _fixed_cost(counts: list[int], repeats: int) -> Iterator[Measured]:
    """A pack of 100,000 chunks with one change each."""
    array = GridArray(ChunkGrid((_SMALL_CHUNKS, _SMALL_ELEMENTS), (1, _SMALL_ELEMENTS)), 2, floating=True)
    table = KernelTable([array], lambda _: np.ones(_SMALL_CHUNKS, np.uint64))
    old = np.full((_SMALL_CHUNKS, _SMALL_ELEMENTS), 0x3C00, np.uint16)
    new = old.copy()
    new[:, 7] += 1
    before, after = (
        Pieces(table, (Piece(0, member, (0,), bits[member]) for member in range(_SMALL_CHUNKS)))
        for bits in (old, new)
    )
    chunks = chunk_list(np.zeros(_SMALL_CHUNKS), np.arange(_SMALL_CHUNKS))
    patches = encode_changed(after, before, chunks)
    works: dict[str, Callable[..., object]] = {
        "encode": partial(encode_changed, after, before, chunks),
        "apply": partial(apply, before, patches.rows, patches.body),
        "resolve": partial(resolve, before, patches.rows, patches.body),
    }
    for name, work in works.items():
        for threads in counts:
            seconds = best_seconds(partial(work, threads=threads), repeats=repeats)
            each = seconds / _SMALL_CHUNKS * 1e6
            yield Measured(
                f"fixed cost of {name}", None, threads, each, "us a chunk", target=1.0, at_most=True
            )
