"""Checks every Triton kernel against the reference on one GPU, then times it beside the device's own copy.

    python -m deltastore.kernels.bench_gpu                     a table, under three minutes on one GPU
    python -m deltastore.kernels.bench_gpu --interpret-check   the checks alone, in Triton's interpreter

Times are medians of ten runs by CUDA events. A ratio is bytes moved in that time over what ``copy_`` moves
(it reads and writes) in the same process: 1.00 is a kernel that memory alone limits. Sparse kernels are
charged 32 bytes, a sector, for every element that they touch, but never more than all of the weights.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from deltastore.kernels.bench_gpu_inversion import InversionCase, inversion_checks
from deltastore.kernels.grid import ChunkGrid
from deltastore.kernels.pieces import GridArray, KernelTable, Piece, Pieces
from deltastore.kernels.reference import apply as reference
from deltastore.kernels.reference.digest import digest_chunks as reference_digest_chunks
from deltastore.kernels.reference.encode import encode_changed as reference_encode_changed
from deltastore.kernels.rows import ChunkList, EncodedPatches, chunk_list

__all__ = ["main"]

_SECTOR: Final = 32
_REPEATS: Final = 10
_DENSITIES: Final = (0.001, 0.01, 0.02, 0.1)
_SMALL: Final = (
    ((2, 70, 90), (1, 40, 90), 2, True),
    ((3, 33, 65), (1, 20, 40), 2, True),
    ((4, 37), (3, 37), 1, True),
    ((1, 24, 33), (1, 16, 33), 4, False),
    ((1, 40, 33), (1, 16, 33), 8, True),
    ((3,), (1,), 2, True),
)


def main(arguments: list[str] | None = None) -> int:
    """The command; exit status 1 where a kernel and the reference differ."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--interpret-check", action="store_true", help="checks only, on the CPU, no GPU needed"
    )
    parser.add_argument("--gib", type=float, default=2.0, help="GiB of BF16 weights to time on (default 2)")
    options = parser.parse_args(arguments)
    if options.interpret_check:
        os.environ["TRITON_INTERPRET"] = "1"  # before the first import of triton
    device = "cpu" if options.interpret_check else "cuda"
    if device == "cuda" and not _has_gpu():
        parser.error("torch finds no CUDA device here; --interpret-check needs none")
    wrong = _checks(device)
    if wrong or options.interpret_check:
        return 1 if wrong else 0
    _Bench(int(options.gib * (1 << 30))).run()
    return 0


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _table(shapes: tuple[tuple[tuple[int, ...], tuple[int, ...], int, bool], ...]) -> KernelTable:
    arrays = [GridArray(ChunkGrid(extent, chunk), size, floating) for extent, chunk, size, floating in shapes]
    return KernelTable(
        arrays,
        lambda array: (
            np.random.default_rng(array).integers(0, 2**64, arrays[array].grid.extent[0], np.uint64)
            | np.uint64(1)
        ),
    )


def _chunks(table: KernelTable) -> ChunkList:
    numbers = [(array, chunk) for array, form in enumerate(table.arrays) for chunk in range(len(form.grid))]
    return chunk_list(*np.array(numbers).T)


def _checks(device: str) -> int:
    """How many kernels differ from the reference on a small model; one line for each."""
    import torch

    from deltastore.kernels import triton as kernels

    table = _table(_SMALL)
    chunks = _chunks(table)
    old, old_host = _small_model(table, 1, device, None)
    new, new_host = _small_model(table, 2, device, old_host)
    expected = reference_encode_changed(new_host, old_host, chunks)
    encoded = kernels.encode_changed(new, old, chunks)
    pack = kernels.DevicePack(old, expected.rows, expected.body)
    digests = kernels.digest_chunks(new, chunks)
    differences = kernels.check(pack)
    kernels.apply(pack)
    wrong_elements = kernels.mismatches(pack)
    pairs = zip(old.pieces, new.pieces, strict=True)
    outcomes = {
        "encode_changed": _same(encoded, expected),
        "digest_chunks": np.array_equal(digests, reference_digest_chunks(new_host, chunks)),
        "check": np.array_equal(differences, reference.resolve(old_host, expected.rows, expected.body)[1]),
        "apply": all(torch.equal(left.view, right.view) for left, right in pairs),
        "mismatches": wrong_elements == 0,
        **inversion_checks(device),
    }
    for name, same in outcomes.items():
        _say(f"{name:16} {'equals the reference' if same else 'DIFFERS from the reference'}")
    return sum(not same for same in outcomes.values())


def _same(encoded: EncodedPatches, expected: EncodedPatches) -> bool:
    return (
        np.array_equal(encoded.rows, expected.rows)
        and np.array_equal(encoded.body, expected.body)
        and np.array_equal(encoded.changed, expected.changed)
    )


def _small_model(table: KernelTable, seed: int, device: str, base: Pieces | None) -> tuple[Pieces, Pieces]:
    """Random bits, every other tensor transposed in memory; near those of ``base`` if given."""
    import torch

    generator = np.random.default_rng(seed)
    on_device, on_host = [], []
    places = [(a, m) for a, form in enumerate(table.arrays) for m in range(form.grid.extent[0])]
    for number, (array, member) in enumerate(places):
        form = table.arrays[array]
        shape = form.grid.extent[1:]
        bits = generator.integers(0, 2**form.bits, shape, form.storage)
        if base is not None:
            density = (0.02, 0.4, 1.0)[array % 3]
            before = base.of(array, member)[0].view
            step = (generator.integers(1, 4, shape) * (1, 40)[member % 2]).astype(form.storage)
            bits = np.where(generator.random(shape) < density, before ^ step, before)
        tensor = torch.from_numpy(np.array(bits).view(f"i{form.itemsize}")).to(device)
        if number % 2 and len(shape) == 2:
            tensor = tensor.t().contiguous().t()
        on_device.append(Piece(array, member, (0,) * len(shape), tensor))
        on_host.append(Piece(array, member, (0,) * len(shape), np.array(bits)))
    return Pieces(table, on_device), Pieces(table, on_host)


@dataclass(frozen=True)
class _Line:
    name: str
    seconds: float
    moved: float
    elements: float


class _Bench:
    """BF16 tensors of 4096 x 4096 elements, with a second copy that differs from it."""

    def __init__(self, size: int) -> None:
        import torch

        self.torch = torch
        members = max(size // (2 * 4096 * 4096), 1)
        self.table = _table((((members, 4096, 4096), (1, 256, 4096), 2, True),))
        self.chunks = _chunks(self.table)
        generator = torch.Generator("cuda").manual_seed(1)
        self.old = torch.randint(
            -(2**15), 2**15, (members, 4096, 4096), dtype=torch.int16, device="cuda", generator=generator
        )
        self.new = self.old.clone()
        self.nbytes = self.old.numel() * 2

    def run(self) -> None:
        from deltastore.kernels import triton as kernels

        torch = self.torch
        _say(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {self.nbytes >> 20} MiB of BF16")
        copy = self._seconds(lambda: self.new.copy_(self.old))
        bandwidth = 2 * self.nbytes / copy
        _say(f"device copy: {bandwidth / 1e9:.0f} GB/s\n")
        _say(f"{'kernel':34}{'ms':>9}{'GB moved':>10}{'of copy':>9}{'M el/s':>10}")
        new = self._pieces(self.new)
        elements = self.old.numel()
        digest = self._wall(lambda: kernels.digest_chunks(new, self.chunks))
        self._print(_Line("digest_chunks, host included", digest, self.nbytes, elements), bandwidth)
        for density in _DENSITIES:
            for line in self._at_density(kernels, density):
                self._print(line, bandwidth)
        for line in self._inversion():
            self._print(line, bandwidth)

    def _inversion(self) -> list[_Line]:
        """A quarter of the elements: the inversion reads six times the bytes of BF16 weights."""
        elements = self.old.numel() // 4
        case = InversionCase(elements)
        moved = elements * case.BYTES
        return [
            _Line("invert, host included", self._wall(case.explained), moved, elements),
            _Line("invert, all blocks wrong", self._wall(case.unexplained), moved, elements),
            _Line("digest_blocks, host included", self._wall(case.digests), 2 * elements, elements),
        ]

    def _at_density(self, kernels: Any, density: float) -> list[_Line]:
        torch = self.torch
        mask = torch.rand(self.old.shape, device="cuda", dtype=torch.float16) < density
        self.new.copy_(self.old ^ mask.to(torch.int16))
        changed = int(mask.sum())
        del mask
        new, old = self._pieces(self.new), self._pieces(self.old)
        label = f"{100 * density:g} %"
        encoded = kernels.encode_changed(new, old, self.chunks)
        encode = self._wall(lambda: kernels.encode_changed(new, old, self.chunks))
        start = time.perf_counter()
        pack = kernels.DevicePack(old, encoded.rows, encoded.body)
        torch.cuda.synchronize()
        prepare = time.perf_counter() - start
        if not np.array_equal(kernels.check(pack), encoded.rows["difference"]):
            raise SystemExit("check: digest differences are not those of the rows")
        check = self._wall(lambda: kernels.check(pack))
        body, touched = len(encoded.body), min(changed * _SECTOR, self.nbytes)
        kept = self.old.clone()
        apply = self._seconds(lambda: kernels.apply(pack))
        if kernels.mismatches(pack) or not torch.equal(self.old, self.new):
            raise SystemExit("apply: the weights are not the new ones")
        read = self._wall(lambda: kernels.mismatches(pack))
        self.old.copy_(kept)
        index = (self.old ^ self.new).view(-1).nonzero().view(-1)
        values = self.new.view(-1)[index]
        rival = self._seconds(lambda: self.old.view(-1).index_copy_(0, index, values))
        self.old.copy_(kept)
        return [
            _Line(f"encode_changed {label}, host included", encode, 2 * self.nbytes + body, changed),
            _Line(f"DevicePack {label}, host included", prepare, body, changed),
            _Line(f"check {label}", check, body + touched, changed),
            _Line(f"apply {label}", apply, body + 2 * touched, changed),
            _Line(f"mismatches {label}", read, body + touched, changed),
            _Line(f"torch index_copy_ {label}", rival, 10 * changed + 2 * touched, changed),
        ]

    def _pieces(self, weights: Any) -> Pieces:
        views = enumerate(weights.unbind(0))
        return Pieces(self.table, [Piece(0, member, (0, 0), view) for member, view in views])

    def _seconds(self, call: Callable[[], object]) -> float:
        """Median time on the device."""
        torch = self.torch
        call()
        times = []
        for _ in range(_REPEATS):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
            call()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / 1e3)
        return float(statistics.median(times))

    def _wall(self, call: Callable[[], object]) -> float:
        """Median time of calls that wait for the device themselves."""
        call()
        times = []
        for _ in range(_REPEATS):
            self.torch.cuda.synchronize()
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    @staticmethod
    def _print(line: _Line, bandwidth: float) -> None:
        ratio = line.moved / line.seconds / bandwidth
        speed = line.elements / line.seconds / 1e6
        _say(f"{line.name:34}{line.seconds * 1e3:9.2f}{line.moved / 1e9:10.2f}{ratio:9.2f}{speed:10.0f}")


if __name__ == "__main__":
    raise SystemExit(main())
