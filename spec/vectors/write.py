"""Write the test vectors: ``python -m spec.vectors.write``.

Everything here is deterministic; a test fails when the files differ from what this writes. The stores under
``streams/`` are the exception: each is written once, by the release that its name says, and never again, so
that they show that old streams stay readable.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from spec.vectors.make import (
    broken,
    canonicals,
    digests,
    edited,
    inventories,
    layouts,
    names,
    packs,
    patches,
    records,
    tables,
    votes,
)
from spec.vectors.make.streams import write_streams

HERE = Path(__file__).parent
FILES: dict[str, Callable[[], object]] = {
    "canonical.json": canonicals.vectors,
    "names.json": names.vectors,
    "table.json": tables.vectors,
    "digest.json": digests.vectors,
    "patch.json": patches.vectors,
    "large.json": patches.large_vectors,
    "pack.json": packs.vectors,
    "record.json": records.vectors,
    "votes.json": votes.vectors,
    "inventory.json": inventories.vectors,
    "layout.json": layouts.vectors,
    "broken.json": broken.vectors,
    "edited.json": edited.vectors,
}


def vector_text(name: str) -> str:
    """The content of one vector file."""
    return json.dumps(FILES[name](), indent=1, ensure_ascii=True) + "\n"


def main() -> None:
    """Write all files, and the stores that are not there yet."""
    write_streams(HERE / "streams")
    for name in FILES:
        (HERE / name).write_text(vector_text(name), encoding="ascii")


if __name__ == "__main__":
    main()
