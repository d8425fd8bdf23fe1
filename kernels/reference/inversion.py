"""The inversion of an AdamW step, block by block, against the digests of what was there before."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deltastore.kernels.blocks import Blocks
from deltastore.kernels.inversion import MOST_UNCERTAIN, Inverted, Outcome, Span, check_inversion
from deltastore.kernels.reference.block_digests import digest_blocks, weights_of

__all__ = ["bf16_bits", "invert", "invert_elements"]

Floats = NDArray[np.float32]
Bits = NDArray[np.uint16]


def bf16_bits(values: Floats) -> Bits:
    """FP32 values as BF16 bits: rounded to nearest even, a NaN as the quiet one of its sign."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = ((bits >> np.uint32(16)) & np.uint32(0x8000)) | np.uint32(0x7FC0)
    return np.where(np.isnan(values), quiet, rounded).astype(np.uint16)


def invert_elements(
    master: Floats, mean: Floats, square: Floats, rule: Any
) -> tuple[Bits, Bits, Bits, Bits, NDArray[np.bool_]]:
    """(new, old, low, high, uncertain) of every element: see ``kernels.inversion``. All of one shape."""
    with np.errstate(all="ignore"):
        scaled = np.sqrt(square) * rule["root_scale"] + rule["eps"]
        update = (rule["step_size"] * mean) / scaled
        before = (master + update) * rule["growth"]
        reach = (np.abs(master) * rule["of_value"] + np.abs(update) * rule["of_update"]) + rule["floor"]
        low, high = bf16_bits(before - reach), bf16_bits(before + reach)
        unknown = np.isnan(before) | np.isnan(reach)
    return bf16_bits(master), bf16_bits(before), low, high, (low != high) | unknown


def invert(
    blocks: Blocks,
    spans: Sequence[Span],
    rules: np.ndarray[Any, Any],
    wanted: NDArray[np.uint64],
    new: Bits,
    old: Bits,
) -> Inverted:
    """Fill ``new`` and ``old`` (n,) with the bits of all boxes now and before the step.

    ``spans``: one for each box of ``blocks``; ``rules`` (r,) of dtype ``RULE``; ``wanted`` (B,): the digest
    of what each block held before. Where the outcome is UNEXPLAINED, ``old`` is what the inversion says.
    A block of at most 8 uncertain elements is settled by trying all their candidates.

    Raises InputError for arguments that contradict each other. O(elements).
    """
    check_inversion(blocks, spans, rules, wanted, new, old)
    candidates = np.empty((2, blocks.elements), np.uint16)
    uncertain = np.empty(blocks.elements, np.bool_)
    for number, span in enumerate(spans):
        here = slice(int(blocks.first[number]), int(blocks.first[number + 1]))
        found = invert_elements(span.master, span.mean, span.square, rules[span.rule])
        parts = (new[here], old[here], *candidates[:, here], uncertain[here])
        for part, values in zip(parts, found, strict=True):
            part[:] = values.ravel()
    digests = digest_blocks(blocks, new)
    counts = (
        np.add.reduceat(uncertain, blocks.starts[:-1], dtype=np.uint16) if len(blocks) else np.zeros(0, "u2")
    )
    known = digest_blocks(blocks, old)
    outcomes = np.zeros(len(blocks), np.uint8)
    for block in np.flatnonzero(known != wanted):
        here = slice(int(blocks.starts[block]), int(blocks.starts[block + 1]))
        missing = int(wanted[block]) - int(known[block])
        outcomes[block] = _settle(blocks, here, old, candidates, uncertain, missing)
        if outcomes[block] == Outcome.UNEXPLAINED and digests[block] == wanted[block]:
            outcomes[block] = Outcome.UNCHANGED
            old[here] = new[here]
    return Inverted(digests, outcomes, counts)


def _settle(
    blocks: Blocks, here: slice, old: Bits, candidates: Bits, uncertain: NDArray[np.bool_], missing: int
) -> Outcome:
    """Try every combination of candidates that changes the digest by ``missing``, and write the first."""
    places = here.start + np.flatnonzero(uncertain[here])
    if not 0 < len(places) <= MOST_UNCERTAIN:
        return Outcome.UNEXPLAINED
    factors = [int(factor) for factor in weights_of(blocks, places)]
    choices = [
        list(dict.fromkeys((int(old[place]), int(candidates[0, place]), int(candidates[1, place]))))
        for place in places
    ]
    for tried in product(*choices):
        steps = zip(tried, choices, factors, strict=True)
        if (sum((bits - known[0]) * factor for bits, known, factor in steps) - missing) % (1 << 64) == 0:
            old[places] = tried
            return Outcome.SETTLED
    return Outcome.UNEXPLAINED
