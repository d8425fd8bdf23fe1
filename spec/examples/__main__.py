"""``python -m spec.examples``: write the blocks of SPEC.md's worked examples."""

from __future__ import annotations

from spec.examples import SPEC, with_blocks

SPEC.write_text(with_blocks(SPEC.read_text(encoding="utf-8")), encoding="utf-8")
