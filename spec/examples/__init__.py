"""The blocks of SPEC.md's worked examples, worked out from what each of them is given.

``python -m spec.examples`` writes them. Every figure and label of a block comes from here, so none is typed
by hand. It stands on ``spec.decoder``, NumPy and a few encoders of its own: nothing of the package.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from spec.examples.encoders import crc32c, table
from spec.examples.layout import layout_text, memory_text
from spec.examples.patches import NARROW, ONE_RUN, TWO_RUNS, patch_text, raw_text, residues_text
from spec.examples.stream import Stream
from spec.examples.values import (
    CANONICAL,
    NOT_CANONICAL,
    TENSORS,
    digest_text,
    members_text,
    names_text,
    ordered_text,
    sealed_text,
    slabs_text,
)
from spec.figures import figures

__all__ = ["SPEC", "blocks", "blocks_of", "crc32c", "with_blocks"]

SPEC: Final = Path(__file__).resolve().parents[2] / "SPEC.md"

_BLOCK: Final = re.compile(r"^```([a-z][a-z0-9-]*)\n(?:(.*?)\n)??```$", re.DOTALL | re.MULTILINE)


def blocks_of(text: str) -> dict[str, str]:
    """The fenced blocks that have a name, by it; ``ValueError`` for a name twice."""
    found: list[tuple[str, str]] = _BLOCK.findall(text)
    if len({name for name, _ in found}) != len(found):
        raise ValueError("a block stands twice")
    return dict(found)


def with_blocks(text: str) -> str:
    """The text with every block that is an example worked out anew."""
    made = blocks()
    return _BLOCK.sub(lambda block: f"```{block[1]}\n{made.get(block[1], block[2])}\n```", text)


def blocks() -> dict[str, str]:
    """All examples by name."""
    return {
        "ordered": ordered_text(),
        "names": names_text(),
        "members": members_text(),
        "canonical": "\n".join(CANONICAL),
        "not-canonical": "\n".join(f"{text:<34} {why}" for text, why in NOT_CANONICAL),
        "sealed": sealed_text(),
        "table": table(TENSORS).decode(),
        "slabs": slabs_text(),
        "digest": digest_text(),
        "patch-one-run": patch_text(ONE_RUN),
        "patch-narrow": patch_text(NARROW),
        "patch-two-runs": patch_text(TWO_RUNS),
        "patch-raw": raw_text(),
        "residues": residues_text(),
        **Stream().blocks(),
        "layout": layout_text(),
        "layout-memory": memory_text(),
        "figures": figures(),
    }
