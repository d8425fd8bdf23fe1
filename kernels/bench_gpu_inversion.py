"""The inversion on one GPU, for ``bench_gpu``: its check against the reference, and what it is timed on."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from deltastore.kernels.blocks import Blocks, BoxOf
from deltastore.kernels.inversion import RULE, Span
from deltastore.kernels.reference import inversion as reference
from deltastore.kernels.reference.block_digests import digest_blocks as reference_digest_blocks

__all__ = ["InversionCase", "inversion_checks"]

_BOXES: Final = (
    BoxOf((9000,), (0,), (9000,), 0x9E3779B97F4A7C15),
    BoxOf((7, 600), (1, 0), (5, 600), 5),
    BoxOf((40, 100), (3, 11), (30, 71), (1 << 64) - 1),
    BoxOf((6, 5000), (2, 17), (2, 4500), 7),
    BoxOf((8, 8192), (1, 8), (1, 8192 - 8), 9),
)
_RULES: Final = np.array(
    [(1e-3, 31.6, 1e-8, 1.00001, 4e-6, 1e-6, 1e-12), (np.inf, 30, 1e-8, 1.0, 4e-6, 1e-6, 1e-40)], RULE
)


def _spans(seed: int) -> list[Span]:
    """Weights and moments such as training has, and, by the last rule, any bits at all."""
    generator = np.random.default_rng(seed)
    spans = []
    for number, box in enumerate(_BOXES):
        master, mean, root = (
            (generator.normal(size=box.size) * scale).astype(np.float32) for scale in (0.02, 1e-3, 1e-3)
        )
        held = [master, mean, root * root]
        last = number == len(_BOXES) - 1
        if last:
            held = [generator.integers(0, 1 << 32, box.size, np.uint32).view(np.float32) for _ in held]
        spans.append(Span(held[0], held[1], held[2], int(last)))
    return spans


def _wanted(blocks: Blocks, spans: list[Span]) -> NDArray[np.uint64]:
    """Digests of one candidate of every element; every fifth block is another's."""
    generator = np.random.default_rng(1)
    before = []
    for span in spans:
        found = reference.invert_elements(span.master, span.mean, span.square, _RULES[span.rule])
        choice = generator.integers(0, 3, span.master.size)
        before.append(np.choose(choice, [each.ravel() for each in found[1:4]]))
    wanted = reference_digest_blocks(blocks, np.concatenate(before))
    wanted[::5] += np.uint64(1)
    return wanted


def _moved(span: Span, device: str, strided: bool) -> Span:
    import torch

    def one(values: Any) -> Any:
        tensor = torch.from_numpy(values.view(np.int32)).to(device).view(torch.float32)
        return tensor.t().contiguous().t() if strided and tensor.ndim == 2 else tensor

    return Span(one(span.master), one(span.mean), one(span.square), span.rule)


def inversion_checks(device: str) -> dict[str, bool]:
    """By kernel, whether it equals the reference: weights as in training, cut, strided, and any bits."""
    import torch

    from deltastore.kernels.triton.block_digests import digest_blocks
    from deltastore.kernels.triton.inversion import invert

    blocks, spans = Blocks(_BOXES), _spans(0)
    wanted = _wanted(blocks, spans)
    new, old = np.zeros((2, blocks.elements), np.uint16)
    expected = reference.invert(blocks, spans, _RULES, wanted, new, old)
    buffers = torch.zeros((2, blocks.elements), dtype=torch.int16, device=device)
    moved = [_moved(span, device, number == 3) for number, span in enumerate(spans)]
    with np.errstate(all="ignore"):
        found = invert(blocks, moved, _RULES, wanted, buffers[0], buffers[1])
    same = np.array_equal(buffers.cpu().numpy().view(np.uint16), np.stack([new, old]))
    for name in ("digests", "outcomes", "uncertain"):
        same &= np.array_equal(getattr(found, name), getattr(expected, name))
    return {
        "invert": same,
        "digest_blocks": np.array_equal(digest_blocks(blocks, buffers[0]), expected.digests),
    }


class InversionCase:
    """FP32 weights and moments of ``elements`` elements on a device, in one box, with a step to take back."""

    BYTES = 16
    """Read and written for an element."""

    def __init__(self, elements: int, device: str = "cuda") -> None:
        import torch

        from deltastore.kernels.triton.inversion import invert

        self._invert = invert
        generator = torch.Generator(device).manual_seed(2)
        values: Any = torch.randn((3, elements), device=device, generator=generator)
        values[0] *= 0.02
        values[1:] *= 1e-3
        values[2].square_()
        box = BoxOf((elements,), (0,), (elements,), 3)
        self.blocks = Blocks([box])
        self._spans = [Span(values[0], values[1], values[2], 0)]
        self._new, self._old = torch.zeros((2, elements), dtype=torch.int16, device=device)
        self._rules = np.array([(1e-6, 31.6, 1e-8, 1.0, 2e-7, 1e-6, 0)], RULE)
        self._wanted = np.zeros(len(self.blocks), np.uint64)
        self.unexplained()
        self._wanted = self.digests()

    def digests(self) -> NDArray[np.uint64]:
        """Of the old bits."""
        from deltastore.kernels.triton.block_digests import digest_blocks

        return digest_blocks(self.blocks, self._old)

    def explained(self) -> None:
        """One inversion that explains every block."""
        outcomes = self._invert(
            self.blocks, self._spans, self._rules, self._wanted, self._new, self._old
        ).outcomes
        if outcomes.any():
            raise SystemExit("invert: blocks are not explained by their own digests")

    def unexplained(self) -> None:
        """One inversion that explains none: all blocks are tried again."""
        self._invert(self.blocks, self._spans, self._rules, ~self._wanted, self._new, self._old)
