"""One patch of a pack: its runs, its bytes, and how near it comes to the least that it could take."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deltastore.entropy import count_bits, position_bits
from deltastore.errors import CorruptError
from deltastore.format.anatomy import HEADER_PARTS, Part, dissect
from deltastore.format.pack import patch_check
from deltastore.format.patch import Encoding
from deltastore.format.table import Array
from deltastore.kernels.reference.ordered import ordered, signed_step
from deltastore.kernels.reference.patch import DecodedPatch, decode_patch
from deltastore.kernels.rows import REASONS, RULE_OF

__all__ = ["EntropyReport", "decoded_patch", "patch_facts"]

Bits = np.ndarray[Any, Any]


def patch_facts(row: Any, start: int, data: bytes, array: Array | None, *, octets: bool) -> dict[str, Any]:
    """The runs of a patch that starts at byte ``start`` of its pack; with ``octets`` its bytes by section."""
    elements = None if array is None else array.grid.box(int(row["chunk"])).elements
    found = dissect(data, int(row["encoding"]), elements, None if array is None else array.element.bits)
    facts: dict[str, Any] = {
        "elements": elements,
        "runs": [
            {
                "run": number,
                "width": run.width,
                "low_bits": run.low_bits,
                "count": run.count,
                "low": _place(run.low, start),
                "high": _place(run.high, start),
                "residues": _place(run.residues, start),
                "bytes": run.nbytes,
            }
            for number, run in enumerate(found.runs)
        ],
    }
    if octets:
        facts["sections"] = [
            {
                "name": part.name if part.run is None else f"run {part.run}: {_short(part.name)}",
                "offset": start + part.start,
                "bits": part.used,
                "hex": data[part.start : part.end].hex(),
            }
            for part in found.parts
        ]
    return facts


def _short(name: str) -> str:
    return "header" if name in HEADER_PARTS else name


def _place(part: Part | None, start: int) -> dict[str, int] | None:
    return None if part is None else {"offset": start + part.start, "bytes": part.end - part.start}


def decoded_patch(row: Any, start: int, data: bytes, array: Array | None, where: str) -> DecodedPatch | None:
    """The patch, checked against its row and by all rules of section 9; None without the array.

    Raises ``CorruptError`` (``bad_hash``, ``bad_patch``) with rule, offset and pattern.
    """
    chunk = int(row["chunk"])
    of = f"patch of {'array ' + str(int(row['array'])) if array is None else array.pattern} chunk {chunk}"
    pattern = None if array is None else array.pattern

    def bad(code: str, problem: str, rule: str) -> CorruptError:
        message = f"{where}: {of} {problem}"
        return CorruptError(code, message, where=where, rule=rule, offset=start, tensor=pattern)

    if len(data) < int(row["length"]):
        raise bad("bad_length", "ends behind the object", "DS061")
    if patch_check(data) != bytes(row["check"]):
        raise bad("bad_hash", "does not match its hash", "DS044")
    if array is None or chunk >= len(array.grid):
        return None
    try:
        decoded = decode_patch(data, int(row["encoding"]), array.element, array.grid.box(chunk).elements)
    except ValueError as error:
        raise bad("bad_patch", f"is refused: {error}", RULE_OF[str(error)]) from None
    if len(decoded.positions) != int(row["count"]):
        raise bad("bad_patch", f"is refused: {REASONS[13]}", "DS044")
    return decoded


@dataclass(slots=True)
class _Tally:
    elements: int = 0
    nbytes: int = 0
    positions: float = 0.0
    steps: Counter[int] = field(default_factory=Counter)
    known: bool = True

    def add(self, elements: int, nbytes: int, positions: float, steps: Bits | None) -> None:
        self.elements += elements
        self.nbytes += nbytes
        self.positions += positions
        if steps is None:
            self.known = False
            return
        values, counts = np.unique(steps, return_counts=True)
        self.steps.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))

    def as_json(self) -> dict[str, Any]:
        """Bits for each element: those stored, and the two entropies."""
        each = 1 / self.elements if self.elements else 0.0
        steps = count_bits(self.steps.values()) if self.known else None
        bound = None if steps is None else self.positions + steps
        return {
            "elements": self.elements,
            "bytes": self.nbytes,
            "bits_per_element": round(8 * self.nbytes * each, 3),
            "position_entropy": round(self.positions * each, 3),
            "step_entropy": None if steps is None else round(steps * each, 3),
            "over_bound": None if not bound else round(8 * self.nbytes / bound, 3),
        }


class EntropyReport:
    """Patches beside their bounds, by the width of their runs (raw by itself), and all together.

    A run of k elements of a chunk of N takes N·H(k/N) bits for its positions at least, and k times the
    entropy of the steps of all runs of its width for how far they moved. All together: of every patch the
    positions at once, and the entropy of all steps. Index rows are not counted; steps are those from the
    base's weights.
    """

    def __init__(self) -> None:
        self._widths: dict[str, _Tally] = {}
        self._all = _Tally()

    def add(self, row: Any, data: bytes, array: Array, decoded: DecodedPatch, base: Bits | None) -> None:
        """Count a patch. ``base``: the bits of its chunk at the base version; None: not known."""
        elements = array.grid.box(int(row["chunk"])).elements
        flat = None if base is None else base.reshape(-1)
        if int(row["encoding"]) == Encoding.RAW:
            steps = self._steps(array, flat, decoded)
            changed = len(decoded.positions) if steps is None else int(np.count_nonzero(steps))
            self._count("raw", changed, len(data), position_bits(elements, changed), _moved(steps))
            self._all.add(changed, len(data), position_bits(elements, changed), _moved(steps))
            return
        steps = self._steps(array, flat, decoded)
        at = 0
        parts = dissect(data, int(row["encoding"]), elements, array.element.bits)
        for run, placed in zip(decoded.runs, parts.runs, strict=True):
            end = at + len(run.positions)
            mine = None if steps is None else steps[at:end]
            self._count(str(run.width), end - at, placed.nbytes or 0, position_bits(elements, end - at), mine)
            at = end
        self._all.add(at, len(data), position_bits(elements, at), steps)

    def _steps(self, array: Array, flat: Bits | None, decoded: DecodedPatch) -> Bits | None:
        if flat is None:
            return None
        old = flat[decoded.positions]
        try:
            new = decoded.new_bits(old)
        except ValueError:
            return None
        floating = array.element.floating
        return signed_step(ordered(old, floating=floating), ordered(new, floating=floating))

    def _count(self, width: str, elements: int, nbytes: int, positions: float, steps: Bits | None) -> None:
        self._widths.setdefault(width, _Tally()).add(elements, nbytes, positions, steps)

    def as_json(self) -> list[dict[str, Any]]:
        """A line for each width, narrow ones first, and one for all."""
        ordered_widths = sorted(self._widths, key=lambda width: int(width) if width.isdigit() else 128)
        lines = [{"width": width, **self._widths[width].as_json()} for width in ordered_widths]
        return [*lines, {"width": "all", **self._all.as_json()}]


def _moved(steps: Bits | None) -> Bits | None:
    return None if steps is None else steps[steps != 0]
